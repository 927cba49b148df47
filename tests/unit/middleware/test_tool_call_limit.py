"""AC-46 to AC-53, D39 to D43: a budget of tool calls, exact for parallel batches in call order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import AgentError, HitlInterrupt, HookContext, ToolRejection, create_middleware, tool
from outlast.errors import AgentRunFailed, AgentRunPaused
from outlast.messages import sequence_fault
from outlast.middleware import human_in_the_loop, policy_filter, tool_call_limit, tool_retry
from outlast.testing.memory import MemoryRuntime, RunSuspended
from outlast.testing.scripted import ScriptedModel, call, calls
from outlast.tools import ToolCall
from tests.unit.middleware.agents import agent, run, statuses, texts

RAN: list[str] = []


@tool
def a() -> str:
    """A."""
    RAN.append("a")
    return "a"


@tool
def b() -> str:
    """B."""
    RAN.append("b")
    return "b"


TOOLS = [a, b]


@pytest.fixture(autouse=True)
def forget() -> None:
    RAN.clear()


def asked(names: str) -> Any:
    """``aba``: three calls in one turn."""
    return calls(*(call(name) for name in names))


async def outcome(*turns: str, hooks: Any) -> list[str]:
    """Per turn, the statuses by first letter."""
    result = await run([*(asked(turn) for turn in turns), "done"], *hooks, tools=TOOLS)
    assert sequence_fault(result.messages) is None
    letters = "".join(status[0] for status in statuses(result.messages))
    cuts = [sum(map(len, turns[:index])) for index in range(len(turns) + 1)]
    return [letters[start:end] for start, end in pairwise(cuts)]


def test_the_limit_is_required_and_the_default_is_to_end_the_run() -> None:
    """AC-46."""
    with pytest.raises(TypeError, match="run_limit is missing"):
        tool_call_limit("a")
    assert tool_call_limit(run_limit=1) == tool_call_limit(None, 1, "error")


async def test_all_tools_share_one_budget_and_in_a_batch_the_first_in_call_order_run() -> None:
    """AC-47, AC-49."""
    assert await outcome("abaa", hooks=[tool_call_limit(run_limit=2, exit_behavior="continue")]) == ["eerr"]
    assert sorted(RAN) == ["a", "b"]


async def test_a_named_limit_counts_and_blocks_its_tool_alone() -> None:
    """AC-47."""
    assert await outcome("abab", "ab", hooks=[tool_call_limit("a", 1, "continue")]) == ["eere", "re"]


async def test_continue_answers_with_feedback_and_the_run_goes_on() -> None:
    """AC-48, D39."""
    result = await run([asked("ab"), "done"], tool_call_limit(None, 1, "continue"), tools=TOOLS)
    assert result.output == "done"
    assert texts(result.messages)[1].startswith("b did not run: this run may make 1 tool calls")


async def test_error_ends_the_run_and_runs_nothing_of_a_batch_that_does_not_fit() -> None:
    """AC-48, AC-49, D39: every call is answered."""
    with pytest.raises(AgentRunFailed) as ended:
        await run([asked("a"), asked("ab"), "never"], tool_call_limit(run_limit=2), tools=TOOLS)
    assert ended.value.code == "BUDGET_EXCEEDED"
    assert RAN == ["a"]
    assert ended.value.result is not None
    assert sequence_fault(ended.value.result.messages) is None
    assert statuses(ended.value.result.messages) == ["executed", "cancelled", "cancelled"]


async def test_a_budget_that_fits_exactly_is_not_exceeded() -> None:
    assert await outcome("ab", "a", hooks=[tool_call_limit(run_limit=3)]) == ["ee", "e"]


async def test_calls_that_a_policy_refuses_are_not_counted_wherever_it_is_registered() -> None:
    """AC-50: also in the same batch, before the later calls are judged."""
    limit, policy = tool_call_limit(run_limit=1, exit_behavior="continue"), policy_filter(deny=["b"])
    assert await outcome("bbab", hooks=[policy, limit]) == ["rrer"]
    assert await outcome("bbab", hooks=[limit, policy]) == ["rrer"]


async def test_unknown_tools_and_arguments_that_do_not_fit_are_not_counted() -> None:
    """AC-50."""
    turn = calls(call("missing"), call("a", stray=1), call("a"), call("a"))
    result = await run([turn, "done"], tool_call_limit(None, 1, "continue"), tools=TOOLS)
    assert statuses(result.messages) == ["failed", "failed", "executed", "rejected"]


async def test_a_call_that_a_person_refuses_gives_its_place_back_for_later() -> None:
    """AC-50: while it waits it holds its place."""
    limit = tool_call_limit(run_limit=1, exit_behavior="continue")
    model = ScriptedModel([asked("ab"), asked("b"), asked("b"), "done"])
    memory = MemoryRuntime(agent(model, limit, human_in_the_loop({"a": True}), tools=TOOLS), "go")
    with pytest.raises(RunSuspended):
        await memory.result()
    memory.restart()
    memory.decide("a", {"reject": "no"})
    assert statuses((await memory.result()).messages) == ["rejected", "rejected", "executed", "rejected"]


async def test_a_call_that_was_approved_after_a_restart_counts_once() -> None:
    """AC-50, AC-51."""
    limit = tool_call_limit(run_limit=2, exit_behavior="continue")
    model = ScriptedModel([asked("ab"), asked("a"), "done"])
    memory = MemoryRuntime(agent(model, limit, human_in_the_loop({"a": True}), tools=TOOLS), "go")
    with pytest.raises(RunSuspended):
        await memory.result()
    memory.restart()
    memory.decide("a", "approve")
    assert statuses((await memory.result()).messages) == ["executed", "executed", "rejected"]


async def test_retries_and_failures_are_one_call() -> None:
    """AC-50."""
    count = 0

    @tool
    def flaky() -> str:
        """Flaky."""
        nonlocal count
        count += 1
        raise OSError("down")

    hooks = tool_call_limit(None, 2, "continue"), tool_retry(2)
    result = await run([call("flaky"), call("flaky"), call("flaky"), "done"], *hooks, tools=[flaky])
    assert statuses(result.messages) == ["failed", "failed", "rejected"]
    assert count == 6


async def test_an_interrupt_of_the_body_that_is_rejected_was_still_a_call() -> None:
    @tool
    def ask() -> str:
        """Ask."""
        raise HitlInterrupt("ask", {})

    model = ScriptedModel([call("ask"), call("ask"), "done"])
    memory = MemoryRuntime(agent(model, tool_call_limit(None, 1, "continue"), tools=[ask]), "go")
    with pytest.raises(RunSuspended):
        await memory.result()
    memory.restart()
    memory.decide("ask", {"reject": "no"})
    assert statuses((await memory.result()).messages) == ["rejected", "rejected"]


async def test_an_edit_that_makes_the_gates_ask_again_is_counted_once_and_for_the_tool_that_runs() -> None:
    """AC-70: the later hook turns every call of a into one of b."""
    rename = create_middleware("rename", before_tool=lambda call, ctx: call.replace(name="b"))
    limits = tool_call_limit("a", 1, "continue"), tool_call_limit("b", 2, "continue")
    assert await outcome("aaa", hooks=[*limits, rename]) == ["eer"]
    assert RAN == ["b", "b"]


async def test_a_call_that_is_asked_about_again_keeps_the_last_place() -> None:
    edit = create_middleware("edit", before_tool=lambda call, ctx: call.replace(args={"kind": "edited"}))
    turn = calls(call("any_kind", kind="a"), call("any_kind", kind="b"))
    result = await run([turn, "done"], tool_call_limit(None, 1, "continue"), edit, tools=[any_kind])
    assert statuses(result.messages) == ["executed", "rejected"]


async def test_two_limits_are_kept_apart_and_a_call_that_both_block_has_one_result() -> None:
    """AC-51, AC-52, D43."""
    hooks = tool_call_limit("a", 1, "continue"), tool_call_limit(None, 1, "continue")
    assert await outcome("aab", hooks=hooks) == ["err"]


async def test_the_count_survives_a_restart_between_steps() -> None:
    """AC-51."""
    crash = True

    def crash_once(request: object, ctx: HookContext) -> None:
        if ctx.step == 2 and crash:
            raise RuntimeError("deploy")

    hooks = tool_call_limit(None, 1, "continue"), create_middleware("crash", before_model=crash_once)
    memory = MemoryRuntime(agent(ScriptedModel([asked("a"), asked("b"), "done"]), *hooks, tools=TOOLS), "go")
    with pytest.raises(AgentRunPaused):
        await memory.result()
    crash = False
    memory.restart()
    memory.resume()
    assert statuses((await memory.result()).messages) == ["executed", "rejected"]


async def test_the_next_run_starts_at_zero_even_with_the_last_ones_state() -> None:
    """AC-51, D41."""
    definition = agent(ScriptedModel([asked("a"), "done"] * 3), tool_call_limit(run_limit=1), tools=TOOLS)
    first = await MemoryRuntime(definition, "go", id="one").result()
    fresh = MemoryRuntime(definition, "again", id="two", messages=first.messages)
    handed = MemoryRuntime(definition, "again", id="three", invocation_state=first.invocation_state)
    assert (await fresh.result()).output == (await handed.result()).output == "done"


async def test_a_model_that_repeats_a_blocked_call_ends_in_the_bound_not_in_a_time_out() -> None:
    """D40."""
    model = ScriptedModel([asked("a")] * 50)
    with pytest.raises(AgentRunFailed, match=r"BUDGET_EXCEEDED: the run kept asking .* 4 steps in a row"):
        await run(model, tool_call_limit(None, 1, "continue", max_blocked_steps=3), tools=TOOLS)
    assert len(model.requests) == 5


async def test_blocked_steps_that_do_not_follow_each_other_are_forgiven() -> None:
    turns = ["ab", "b", "ab", "b", "ab", "b"]
    limit = tool_call_limit("a", 0, "continue", max_blocked_steps=1)
    assert await outcome(*turns, hooks=[limit]) == ["re", "e", "re", "e", "re", "e"]


async def test_blocked_calls_are_settled_by_after_tool_like_every_other() -> None:
    """AC-11."""
    seen: list[str] = []

    def note(result: Any, ctx: HookContext) -> None:
        seen.append(result.status)

    await outcome("ab", hooks=[tool_call_limit(None, 1, "continue"), create_middleware("n", after_tool=note)])
    assert seen == ["executed", "rejected"]


@given(
    turns=st.lists(st.text("abxy", min_size=1, max_size=6), min_size=1, max_size=4),
    limit=st.integers(0, 6),
    last=st.booleans(),
)
async def test_it_admits_what_a_plain_count_admits(turns: list[str], limit: int, last: bool) -> None:
    """AC-49, AC-50: x is refused by a later (or earlier) hook, y does not fit its arguments; neither is counted."""

    def refuse(call: ToolCall, ctx: HookContext) -> None:
        if call.args.get("kind") == "x":
            raise ToolRejection("no")

    script = [calls(*(_lettered(letter) for letter in turn)) for turn in turns]
    hooks: list[object] = [create_middleware("refuse", before_tool=refuse)]
    hooks.insert(0 if last else 1, tool_call_limit(None, limit, "continue", max_blocked_steps=100))
    result = await run([*script, "done"], *hooks, tools=[any_kind])
    expected: list[bool] = []
    for letter in "".join(turns):
        expected.append(letter in "ab" and sum(expected) < limit)
    assert [status == "executed" for status in statuses(result.messages)] == expected


@tool
def any_kind(kind: str) -> str:
    """Any."""
    return kind


def _lettered(letter: str) -> Any:
    return call("any_kind", kind=letter) if letter != "y" else call("any_kind", kind=3)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"run_limit": -1}, "run_limit must be a whole number from 0 up, not -1"),
        ({"run_limit": 1.5}, "run_limit"),
        ({"run_limit": True}, "run_limit"),
        ({"run_limit": 1, "exit_behavior": "end"}, "exit_behavior must be 'error' or 'continue', not 'end'"),
        ({"run_limit": 1, "max_blocked_steps": 0}, "max_blocked_steps must be a whole number from 1 up"),
        ({"tool_name": "", "run_limit": 1}, "tool_name must be a text"),
        ({"tool_name": ["a"], "run_limit": 1}, "tool_name must be a text"),
    ],
)
def test_a_bad_option_is_named_when_it_is_given(arguments: dict[str, Any], named: str) -> None:
    """AC-53."""
    with pytest.raises((ValueError, TypeError), match=named):
        tool_call_limit(**arguments)


async def test_the_error_is_no_failure_that_another_hook_may_swallow() -> None:
    """AC-45."""
    seen: list[Exception] = []

    def watch(call: ToolCall, ctx: HookContext) -> None:
        limit = tool_call_limit(run_limit=0)
        try:
            limit.before_tool(call, ctx)
        except AgentError as error:
            seen.append(error)
            raise

    with pytest.raises(AgentRunFailed):
        await run([asked("a"), "never"], create_middleware("watch", before_tool=watch), tools=TOOLS)
    assert [error.retryable for error in seen if isinstance(error, AgentError)] == [False]
