"""AC-29 to AC-36, D31, D32, D38: a model call is made again, on the run's own clock."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import AgentError, HitlInterrupt, HookContext, create_middleware, stamp_retryable, tool
from outlast.errors import AgentRunFailed, AgentRunPaused, AuthenticationFailed, ModelError, RateLimited, ServerFault
from outlast.middleware import compose_model_call, model_retry
from outlast.middleware.contract import ModelNext
from outlast.middleware.retry_policy import RetryPolicy
from outlast.model import Completion, ModelRequest
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import ScriptedModel, call, text
from tests.unit.middleware.agents import agent, run


def failing(*errors: BaseException, then: str = "done") -> ScriptedModel:
    return ScriptedModel([*errors, then])


def policy(**options: Any) -> RetryPolicy:
    return RetryPolicy(owner="test", **options)


def delays(retries: int, **options: Any) -> list[float]:
    return [policy(**options).delay_ms(n, ServerFault("x"), Random(1)) for n in range(retries)]


def test_the_options_have_the_seeds_names_and_defaults() -> None:
    """AC-29."""
    assert model_retry().policy == policy().__class__(
        owner="model_retry",
        max_retries=2,
        initial_delay_ms=1000,
        backoff_factor=2.0,
        max_delay_ms=60_000,
        jitter=True,
        retry_on=None,
        on_failure="error",
    )


def test_without_jitter_the_waits_double_up_to_the_longest() -> None:
    """AC-30."""
    expected: list[float] = [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert delays(8, jitter=False) == expected


def test_a_factor_of_zero_keeps_the_first_wait_and_a_huge_power_is_the_longest() -> None:
    assert delays(3, jitter=False, backoff_factor=0) == [1000, 1000, 1000]
    assert policy(jitter=False).delay_ms(100_000, ServerFault("x"), Random(1)) == 60_000


@given(retry=st.integers(0, 200), seed=st.integers(), longest=st.integers(0, 100_000))
def test_jitter_stays_within_a_quarter_and_never_above_the_longest_wait(retry: int, seed: int, longest: int) -> None:
    """AC-30."""
    plain = policy(max_delay_ms=longest, jitter=False).delay_ms(retry, ServerFault("x"), Random(seed))
    varied = policy(max_delay_ms=longest).delay_ms(retry, ServerFault("x"), Random(seed))
    assert plain * 0.75 <= varied <= min(plain * 1.25, longest)


async def test_the_servers_wait_hint_is_a_floor() -> None:
    model = failing(RateLimited("slow down", wait_seconds=90))
    memory = MemoryRuntime(agent(model, model_retry(jitter=False)), "go")
    began = memory.now()
    await memory.result()
    assert (memory.now() - began).total_seconds() == 90


async def test_waits_are_timers_of_the_run_with_semantic_ids() -> None:
    memory = MemoryRuntime(agent(failing(ServerFault("a"), ServerFault("b")), model_retry(jitter=False)), "go")
    began = memory.now()
    assert (await memory.result()).output == "done"
    assert (memory.now() - began).total_seconds() == 3
    assert memory.commands == [
        "s0001.model",
        "s0001.wrap_model.model_retry.sleep",
        "s0001.model.2",
        "s0001.wrap_model.model_retry.sleep.2",
        "s0001.model.3",
    ]


async def test_jitter_comes_from_the_runs_own_randomness() -> None:
    async def waited(seed: int) -> float:
        memory = MemoryRuntime(agent(failing(ServerFault("a")), model_retry()), "go", seed=seed)
        began = memory.now()
        await memory.result()
        return (memory.now() - began).total_seconds()

    assert await waited(1) == await waited(1) != await waited(2)


async def caught(model: ScriptedModel, retry: object) -> list[Exception]:
    """What came out of the retry."""
    seen: list[Exception] = []

    async def watch(request: ModelRequest, call_next: ModelNext, ctx: HookContext) -> Completion:
        try:
            return await call_next(request)
        except Exception as error:
            seen.append(error)
            return text("caught")

    await run(model, create_middleware("watch", wrap_model=watch), retry)
    return seen


def never(error: Exception) -> str:
    raise AssertionError("on_failure was asked")


async def test_a_false_verdict_passes_as_the_same_object_after_one_call_and_on_failure_is_not_asked() -> None:
    """AC-28."""
    error = stamp_retryable(ValueError("no"), False)
    model = failing(error)
    assert await caught(model, model_retry(on_failure=never)) == [error]
    assert len(model.requests) == 1


async def test_a_true_verdict_is_retried_though_its_class_is_not_listed() -> None:
    """AC-31."""
    model = failing(stamp_retryable(ValueError("try me"), True))
    assert (await run(model, model_retry(retry_on=KeyError))).output == "done"


@pytest.mark.parametrize("retry_on", [ConnectionError, (KeyError, ConnectionError), lambda e: "reset" in str(e)])
async def test_listed_classes_their_subclasses_and_a_function_of_the_error_decide(retry_on: Any) -> None:
    """AC-31."""
    model = failing(ConnectionResetError("reset"))
    assert (await run(model, model_retry(retry_on=retry_on))).output == "done"


async def test_an_error_outside_retry_on_is_raised_after_one_call_and_on_failure_is_not_asked() -> None:
    """AC-31, D32."""
    error = TypeError("a bug")
    model = failing(error)
    assert await caught(model, model_retry(retry_on=(RateLimited,), on_failure="continue")) == [error]
    assert await caught(failing(error), model_retry(retry_on=(RateLimited,), on_failure=never)) == [error]
    assert len(model.requests) == 1


async def test_an_error_that_crossed_an_activity_is_told_by_the_names_of_its_classes() -> None:
    """AC-27, AC-31."""
    crossed = ModelError("x", error_classes=("my.Odd", "builtins.LookupError"))
    assert (await run(failing(crossed), model_retry(retry_on=LookupError))).output == "done"


async def test_the_last_error_is_raised_as_the_same_object() -> None:
    """AC-32."""
    errors = [ServerFault("1"), ServerFault("2"), ServerFault("3")]
    assert await caught(failing(*errors), model_retry()) == errors[2:]


async def test_continue_ends_the_run_with_a_message_that_names_attempts_class_and_text() -> None:
    """AC-32."""
    result = await run(failing(*[ServerFault("boom")] * 3), model_retry(on_failure="continue"))
    assert result.output == "The model call was tried 3 times. ServerFault: boom"
    assert result.finish == "error"


async def asked_later(error: Exception) -> str:
    await asyncio.sleep(0)
    return f"sorry: {error}"


@pytest.mark.parametrize("on_failure", [lambda error: f"sorry: {error}", asked_later])
async def test_a_function_makes_the_text_and_may_be_async(on_failure: Any) -> None:
    """AC-32."""
    result = await run(failing(ServerFault("boom")), model_retry(max_retries=0, on_failure=on_failure))
    assert result.output == "sorry: boom"


async def test_a_function_that_gives_no_text_parks_the_run_by_the_hooks_name() -> None:
    broken: Any = lambda error: None  # noqa: E731
    with pytest.raises(AgentRunPaused, match="on_failure must return text, not NoneType"):
        await run(failing(ServerFault("boom")), model_retry(max_retries=0, on_failure=broken))


@pytest.mark.parametrize(
    "control", [AgentError("MINE", "x", retryable=True), stamp_retryable(AgentError("B", "x"), True)]
)
async def test_agent_errors_pass_whatever_their_flag_and_on_failure_say(control: AgentError) -> None:
    """AC-34."""
    model = failing(control)
    with pytest.raises(AgentRunFailed, match=control.code):
        await run(model, model_retry(on_failure="continue", retry_on=Exception))
    assert len(model.requests) == 1


async def test_an_interrupt_inside_a_model_hook_is_neither_retried_nor_swallowed() -> None:
    """AC-34, D31."""
    interrupt = HitlInterrupt("publish", {})
    model = failing(interrupt)
    assert await caught(model, model_retry(on_failure="continue")) == [interrupt]
    assert len(model.requests) == 1


async def test_cancellation_is_never_retried_nor_made_a_message() -> None:
    """AC-36."""
    model = failing(asyncio.CancelledError())
    memory = MemoryRuntime(agent(model, model_retry(on_failure="continue")), "go")
    with pytest.raises(AgentRunPaused, match="CancelledError"):
        await memory.result()
    assert len(model.requests) == 1


async def test_a_tool_whose_error_says_timed_out_is_no_failure_of_the_model() -> None:
    """D38."""

    @tool
    def slow() -> str:
        """Slow."""
        raise TimeoutError("the request timed out, 503 overloaded")

    model = ScriptedModel([call("slow"), "done"])
    await run(model, model_retry(), tools=[slow])
    assert len(model.requests) == 2


async def test_retries_do_not_count_as_steps_and_their_calls_count_in_usage() -> None:
    """AC-24."""
    result = await run(failing(ServerFault("x")), model_retry())
    assert result.steps == 1
    assert result.usage.model_calls == 1


async def test_watchers_are_told_of_each_retry() -> None:
    memory = MemoryRuntime(agent(failing(ServerFault("x")), model_retry(jitter=False)), "go")
    await memory.result()
    told = [event.data["text"] for event in memory.events if event.kind == "custom"]
    assert told == ["The model call failed (ServerFault); retry 1 in 1.0 s"]


async def test_a_wrong_key_parks_the_run_at_once_and_a_resume_repeats_the_call_alone() -> None:
    model = failing(AuthenticationFailed("401"))
    memory = MemoryRuntime(agent(model, model_retry()), "go")
    with pytest.raises(AgentRunPaused):
        await memory.result()
    memory.resume()
    assert (await memory.result()).output == "done"
    assert len(model.requests) == 2


async def test_the_helper_composes_it_without_an_agent() -> None:
    """AC-20."""

    async def answer(request: ModelRequest) -> Completion:
        return text("hi")

    chain = compose_model_call([model_retry()], answer, HookContext())
    assert (await chain(ModelRequest(messages=()))).message.text == "hi"


@pytest.mark.parametrize("pair", list(pairwise(["error", "continue", "error"])))
async def test_two_retries_multiply(pair: tuple[Any, Any]) -> None:
    model = failing(*[ServerFault("x")] * 3)
    outer, inner = model_retry(1, name="outer"), model_retry(1, on_failure=pair[0], name="inner")
    result = await run(model, outer, inner)
    assert len(model.requests) == (4 if pair[0] == "error" else 2)
    assert result.finish == ("stop" if pair[0] == "error" else "error")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_retries": -1}, "max_retries must be a whole number from 0 up, not -1"),
        ({"max_retries": True}, "max_retries"),
        ({"max_retries": 1.5}, "max_retries"),
        ({"initial_delay_ms": -1}, "initial_delay_ms must be a finite number from 0 up, not -1"),
        ({"backoff_factor": float("nan")}, "backoff_factor"),
        ({"max_delay_ms": float("inf")}, "max_delay_ms"),
        ({"on_failure": "ignore"}, "on_failure must be 'error', 'continue' or a function, not 'ignore'"),
        ({"jitter": "yes"}, "jitter must be True or False"),
        ({"retry_on": "ValueError"}, "retry_on must be exception classes"),
        ({"retry_on": [ValueError, "x"]}, "retry_on must be exception classes"),
        ({"retry_on": int}, "retry_on must be exception classes"),
    ],
)
def test_a_bad_option_is_named_when_it_is_given(options: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        model_retry(**options)
