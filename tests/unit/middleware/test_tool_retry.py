"""AC-33 to AC-36, D31: a tool is run again with the same rules, and never against its own word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast import (
    AgentError,
    HitlInterrupt,
    HookContext,
    ToolContext,
    ToolRejection,
    create_middleware,
    stamp_retryable,
    tool,
)
from outlast.errors import AgentRunFailed, ToolError
from outlast.middleware import human_in_the_loop, tool_retry
from outlast.middleware.contract import ToolNext
from outlast.testing.memory import MemoryRuntime, RunSuspended
from outlast.testing.scripted import call, calls
from outlast.tools import Tool, ToolCall, ToolResult
from tests.unit.middleware.agents import agent, run, statuses, texts


class Counted:
    """A tool that raises what it is told to, and counts."""

    def __init__(self, *errors: BaseException, idempotent: bool = True, name: str = "search") -> None:
        self.errors = list(errors)
        self.keys: list[tuple[str, int]] = []
        self.tool: Tool = tool(name=name, idempotent=idempotent)(self._body())

    @property
    def runs(self) -> int:
        return len(self.keys)

    def _body(self) -> Callable[..., str]:
        def body(context: ToolContext) -> str:
            """Search."""
            self.keys.append((context.idempotency_key, context.attempt))
            if self.runs <= len(self.errors):
                raise self.errors[self.runs - 1]
            return "found"

        return body


async def test_without_a_list_every_tool_is_retried() -> None:
    """AC-33."""
    search = Counted(TimeoutError("slow"), OSError("down"))
    result = await run([call("search"), "done"], tool_retry(), tools=[search.tool])
    assert texts(result.messages) == ["found"]
    assert search.runs == 3


async def test_with_a_list_only_those_tools_are_retried_and_an_empty_list_is_none() -> None:
    """AC-33."""
    a, b = Counted(OSError("x"), name="a"), Counted(OSError("x"), name="b")
    result = await run(
        [calls(call("a"), call("b")), "done"],
        tool_retry(tools=["a"]),
        tool_retry(tools=[], name="none"),
        tools=[a.tool, b.tool],
    )
    assert statuses(result.messages) == ["executed", "failed"]
    assert (a.runs, b.runs) == (2, 1)


async def test_tools_may_be_named_by_the_tool_itself() -> None:
    search = Counted(OSError("x"))
    assert statuses(
        (await run([call("search"), "done"], tool_retry(tools=[search.tool]), tools=[search.tool])).messages
    )
    assert search.runs == 2


async def test_every_attempt_has_the_calls_one_idempotency_key() -> None:
    search = Counted(OSError("x"), OSError("y"))
    memory = MemoryRuntime(agent([call("search"), "done"], tool_retry(jitter=False), tools=[search.tool]), "go")
    await memory.result()
    assert search.keys == [
        ("memory-run/s0001.tool.1", 1),
        ("memory-run/s0001.tool.1", 2),
        ("memory-run/s0001.tool.1", 3),
    ]
    assert [item for item in memory.commands if "tool" in item] == [
        "s0001.tool.1",
        "s0001.tool.1.around_tool.tool_retry.sleep",
        "s0001.tool.1.2",
        "s0001.tool.1.around_tool.tool_retry.sleep.2",
        "s0001.tool.1.3",
    ]


async def test_the_error_is_told_by_the_class_that_the_body_raised() -> None:
    """AC-27, AC-31."""
    search = Counted(ConnectionResetError("x"))
    assert texts(
        (await run([call("search"), "done"], tool_retry(retry_on=ConnectionError), tools=[search.tool])).messages
    )
    assert search.runs == 2
    other = Counted(KeyError("x"))
    await run([call("search"), "done"], tool_retry(retry_on=ConnectionError), tools=[other.tool])
    assert other.runs == 1


async def test_a_false_verdict_is_one_run_and_a_true_one_beats_retry_on() -> None:
    """AC-28, AC-31."""
    fatal, fleeting = Counted(stamp_retryable(OSError("x"), False)), Counted(stamp_retryable(OSError("x"), True))
    await run([call("search"), "done"], tool_retry(on_failure="continue"), tools=[fatal.tool])
    await run([call("search"), "done"], tool_retry(retry_on=KeyError), tools=[fleeting.tool])
    assert (fatal.runs, fleeting.runs) == (1, 2)


async def test_error_gives_the_model_the_last_error_and_continue_a_count_of_the_attempts() -> None:
    """AC-32."""
    for on_failure, expected in (
        ("error", "search failed: OSError: 3"),
        ("continue", "search was tried 3 times. search failed: OSError: 3"),
        (lambda error: f"down ({error.tool})", "down (search)"),
    ):
        search = Counted(OSError("1"), OSError("2"), OSError("3"))
        retry: Any = tool_retry(on_failure=on_failure)  # type: ignore[arg-type] # one of three kinds
        result = await run([call("search"), "done"], retry, tools=[search.tool])
        [answer] = result.messages[2].tool_results
        assert (answer.text, answer.is_error, answer.status, answer.call_id) == (expected, True, "failed", "call_1_1")


async def test_the_last_error_is_raised_as_the_same_object() -> None:
    """AC-32."""
    raised: list[BaseException] = []
    given = [ToolError("1"), ToolError("2"), ToolError("3")]

    script = iter(given)

    async def inner(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        raise next(script)

    async def outer(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        try:
            return await call_next(call)
        except ToolError as error:
            raised.append(error)
            raise

    hooks = create_middleware("outer", around_tool=outer), tool_retry(), create_middleware("inner", around_tool=inner)
    await run([call("search"), "done"], *hooks, tools=[Counted().tool])
    assert raised == given[2:]


async def test_an_interrupt_in_the_body_suspends_once_with_one_attempt_though_failures_continue() -> None:
    """AC-35, D31."""
    search = Counted(HitlInterrupt("search", {}))
    memory = MemoryRuntime(
        agent([call("search"), "done"], tool_retry(on_failure="continue"), tools=[search.tool]), "go"
    )
    with pytest.raises(RunSuspended):
        await memory.result()
    assert search.runs == 1
    assert len(memory.pending) == 1
    memory.decide("search", "approve")
    assert texts((await memory.result()).messages) == ["found"]
    assert search.runs == 2


async def test_an_interrupt_of_an_inner_hook_suspends_once() -> None:
    """AC-35."""
    asked = []

    async def ask(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        if ctx.decision(call) is None:
            asked.append(call.id)
            raise HitlInterrupt(call.name, call.args)
        return await call_next(call)

    search = Counted()
    hooks = tool_retry(on_failure="continue"), create_middleware("ask", around_tool=ask)
    memory = MemoryRuntime(agent([call("search"), "done"], *hooks, tools=[search.tool]), "go")
    with pytest.raises(RunSuspended):
        await memory.result()
    assert (len(asked), search.runs) == (1, 0)
    memory.decide("search", "approve")
    assert statuses((await memory.result()).messages) == ["executed"]
    assert search.runs == 1


@pytest.mark.parametrize("control", [AgentError("STOP", "x", retryable=True), ToolRejection("no")])
async def test_agent_errors_and_rejections_of_the_body_are_its_last_word(control: Exception) -> None:
    """AC-34."""
    search = Counted(control)
    memory = MemoryRuntime(
        agent([call("search"), "done"], tool_retry(on_failure="continue"), tools=[search.tool]), "go"
    )
    if isinstance(control, AgentError):
        with pytest.raises(AgentRunFailed, match="STOP"):
            await memory.result()
    else:
        assert statuses((await memory.result()).messages) == ["rejected"]
    assert search.runs == 1


async def test_a_tool_that_is_not_idempotent_is_run_again_only_if_its_body_says_that_nothing_happened() -> None:
    plain = Counted(OSError("half done?"), idempotent=False)
    stamped = Counted(stamp_retryable(OSError("refused before anything"), True), idempotent=False)
    first = await run([call("search"), "done"], tool_retry(), tools=[plain.tool])
    second = await run([call("search"), "done"], tool_retry(), tools=[stamped.tool])
    assert (plain.runs, stamped.runs) == (1, 2)
    assert texts(first.messages) == ["search failed: OSError: half done?"]
    assert texts(second.messages) == ["found"]


async def test_arguments_that_do_not_fit_are_the_models_to_mend_not_to_retry() -> None:
    search = Counted()
    memory = MemoryRuntime(agent([call("search", stray=1), "done"], tool_retry(), tools=[search.tool]), "go")
    assert statuses((await memory.result()).messages) == ["failed"]
    assert search.runs == 0
    assert not any("sleep" in item for item in memory.commands)


async def test_retries_of_an_approved_call_do_not_ask_again() -> None:
    search = Counted(OSError("x"))
    hooks = human_in_the_loop({"search": True}), tool_retry()
    memory = MemoryRuntime(agent([call("search"), "done"], *hooks, tools=[search.tool]), "go")
    with pytest.raises(RunSuspended):
        await memory.result()
    memory.decide("search", "approve")
    result = await memory.result()
    assert statuses(result.messages) == ["executed"]
    assert len(result.audit) == 1
    assert search.runs == 2


async def test_parallel_calls_retry_each_on_its_own() -> None:
    a, b = Counted(OSError("x"), name="a"), Counted(OSError("x"), OSError("y"), name="b")
    result = await run([calls(call("a"), call("b")), "done"], tool_retry(), tools=[a.tool, b.tool])
    assert statuses(result.messages) == ["executed", "executed"]
    assert (a.runs, b.runs) == (2, 3)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_retries": -1}, "tool_retry: max_retries"),
        ({"tools": "search"}, "tools must be a list of tool names, not 'search'"),
        ({"tools": [3]}, "tools holds 3"),
        ({"tools": 3}, "tools must be a list"),
    ],
)
def test_a_bad_option_is_named_when_it_is_given(options: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        tool_retry(**options)
