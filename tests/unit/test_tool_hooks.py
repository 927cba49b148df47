"""AC-8 to AC-12, AC-19, AC-22: what hooks may do to a tool call and its result; what becomes of a batch."""

from __future__ import annotations

import asyncio

import pytest

from outlast import AgentRunPaused, HookContext, ToolRejection, create_middleware, tool
from outlast.messages import assistant
from outlast.middleware.contract import ToolNext
from outlast.testing import ScriptedModel, call, calls
from outlast.testing.scripted import Reply
from outlast.tools import ToolCall, ToolResult
from tests.unit.hooked import Tracer, outcome


async def test_before_tool_may_edit_arguments_and_name() -> None:
    """AC-8."""

    def edit(call: ToolCall, ctx: HookContext) -> ToolCall | None:
        return call.replace(name="double", args={"a": 21}) if call.name == "add" else None

    texts, run = await outcome([call("add", a=1, b=2), "done"], create_middleware("x", before_tool=edit))
    assert texts[0].endswith("42")
    assert "double" in texts[0]
    [result] = run.state.transcript[2].tool_results
    assert (result.name, result.executed_name, result.executed_args) == ("add", "double", '{"a": 21}')


async def test_after_a_rejection_later_gates_and_the_tool_are_skipped_and_every_after_tool_runs() -> None:
    """AC-9, AC-11, AC-12."""
    trace: list[str] = []

    def reject(call: ToolCall, ctx: HookContext) -> None:
        raise ToolRejection("not today")

    stack = (Tracer("A", trace), create_middleware("no", before_tool=reject), Tracer("B", trace))
    texts, run = await outcome([call("add", a=1, b=2), "done"], *stack)
    assert texts == ["not today"]
    assert run.state.transcript[2].tool_results[0].status == "rejected"
    assert [line for line in trace if "tool" in line] == ["before_tool A", "after_tool B", "after_tool A"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (call("nope", a=1), "there is no tool named 'nope'"),
        (call("add", a="x", b=2), "a: Input should be a valid integer"),
        (call("add", a=1), "b: Field required"),
        (call("add", a=1, b=2, c=3), "c: Extra inputs are not permitted"),
    ],
)
async def test_what_cannot_run_is_an_error_result_that_passes_after_tool_once(reply: Reply, expected: str) -> None:
    """AC-11, AC-22."""
    trace: list[str] = []
    texts, _ = await outcome([reply, "done"], Tracer("A", trace))
    assert expected in texts[0]
    assert trace.count("after_tool A") == 1
    assert "enter tool A" not in trace


async def test_invalid_json_arguments_are_an_error_result_and_are_sent_again_as_they_were() -> None:
    broken = assistant((call("add").message.tool_calls[0].replace(raw_args='{"a": 1,'),))
    model = ScriptedModel([broken, "done"])
    texts, _ = await outcome([], model=model)
    assert "not valid JSON" in texts[0]
    assert model.requests[1].messages[1].tool_calls[0].raw_args == '{"a": 1,'


async def test_a_call_that_the_length_limit_cut_off_never_runs() -> None:
    cut = call("add", a=1, b=2).replace(finish="length")
    texts, _ = await outcome([cut, "done"])
    assert "cut off" in texts[0]


async def test_tools_run_where_the_finish_value_denies_it() -> None:
    texts, _ = await outcome([call("add", a=1, b=2).replace(finish="stop"), "done"])
    assert texts == ["3"]


async def test_bodies_of_one_step_run_together_up_to_the_bound() -> None:
    """Section 2, rule 3: each is a command of its own."""
    running, most = [0], [0]

    @tool
    async def busy(n: int) -> str:
        """Be busy."""
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.01)
        running[0] -= 1
        return str(n)

    batch = calls(*(call("busy", n=n) for n in range(6)))
    texts, run = await outcome([batch, "done"], tools=[busy], max_parallel_tools=2)
    assert (texts, most) == ([str(n) for n in range(6)], [2])
    assert [command for command in run.commands if "tool" in command] == [f"s0001.tool.{n}" for n in range(1, 7)]


async def test_results_come_in_call_order_whatever_finishes_first() -> None:
    @tool
    async def wait(ms: int) -> str:
        """Wait."""
        await asyncio.sleep(ms / 1000)
        return f"waited {ms}"

    texts, _ = await outcome([calls(call("wait", ms=40), call("wait", ms=1)), "done"], tools=[wait])
    assert texts == ["waited 40", "waited 1"]


async def test_around_tool_may_not_edit_the_call_since_no_gate_has_seen_the_edit() -> None:
    async def sneak(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        return await call_next(call.replace(args={"a": 100, "b": 0}))

    with pytest.raises(AgentRunPaused, match="edit them in before_tool"):
        await outcome([call("add", a=1, b=2), "done"], create_middleware("x", around_tool=sneak))


async def test_a_hook_that_calls_twice_at_once_runs_the_body_once() -> None:
    ran: list[int] = []

    @tool
    async def count() -> str:
        """Count."""
        ran.append(1)
        await asyncio.sleep(0)
        return "counted"

    async def both(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        first, second = await asyncio.gather(call_next(call), call_next(call))
        assert first == second
        return first

    texts, _ = await outcome([call("count"), "done"], create_middleware("x", around_tool=both), tools=[count])
    assert (texts, ran) == (["counted"], [1])


async def test_after_tool_may_refuse_a_result_and_the_run_goes_on() -> None:
    """AC-11, AC-81: the model reads the refusal instead of the result; the hooks after it see that."""
    trace: list[str] = []

    def refuse(result: ToolResult, ctx: HookContext) -> None:
        raise ToolRejection("withheld")

    texts, run = await outcome(
        [call("add", a=1, b=2), "done"], Tracer("A", trace), create_middleware("no", after_tool=refuse)
    )
    assert texts == ["withheld"]
    assert run.state.transcript[2].tool_results[0].is_error
    assert trace.count("after_tool A") == 1


async def test_an_edit_is_shown_to_the_hooks_before_the_editor() -> None:
    """AC-69, AC-70: what they agreed to is what runs."""
    seen: list[str] = []

    def policy(call: ToolCall, ctx: HookContext) -> None:
        seen.append(call.name)
        if call.name == "double":
            raise ToolRejection("double is denied")

    def rename(call: ToolCall, ctx: HookContext) -> ToolCall:
        return call.replace(name="double", args={"a": 1})

    stack = (create_middleware("policy", before_tool=policy), create_middleware("rename", before_tool=rename))
    texts, _ = await outcome([call("add", a=1, b=2), "done"], *stack)
    assert (texts, seen) == (["double is denied"], ["add", "double"])


async def test_hooks_that_keep_editing_in_turn_park_the_run_by_name() -> None:
    def up(call: ToolCall, ctx: HookContext) -> ToolCall:
        return call.replace(args={"a": call.args["a"] + 1, "b": 0})

    stack = (create_middleware("one", before_tool=up), create_middleware("two", before_tool=up))
    with pytest.raises(AgentRunPaused, match="keep editing add in turn"):
        await outcome([call("add", a=1, b=2), "done"], *stack)
