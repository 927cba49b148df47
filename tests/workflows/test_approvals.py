"""People and clocks decide, on a real server: from hooks and tools, over time-outs, restarts and handovers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast import (
    Agent,
    AgentOptions,
    AgentRunPaused,
    HitlInterrupt,
    HookContext,
    ToolContext,
    ToolRejection,
    create_middleware,
    side_effect,
    tool,
)
from outlast.errors import DecisionRefused
from outlast.events import Event
from outlast.messages import sequence_fault
from outlast.middleware import human_in_the_loop
from outlast.middleware.contract import ToolNext
from outlast.run import Run
from outlast.state import RunResult
from outlast.testing import ScriptedModel, call, calls, local_env
from outlast.testing.scripted import Reply
from outlast.tools import ToolCall, ToolResult

pytestmark = pytest.mark.usefixtures("replay_every_run")


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


@tool
def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


@tool
def risky(n: int, context: ToolContext) -> str:
    """Ask before acting."""
    if context.decision is None:
        raise HitlInterrupt("risky", {"n": n}, description="really?")
    return f"did {n} ({context.decision})"


ASK = call("publish", title="draft")


def made(name: str, replies: list[Reply], *middleware: object) -> Agent:
    options = AgentOptions(
        name=name, model=ScriptedModel(replies), tools=[publish, look, risky], middleware=list(middleware)
    )
    return Agent(options)


def results(result: RunResult) -> list[str]:
    assert sequence_fault(result.messages) is None
    return [found.text for message in result.messages for found in message.tool_results]


async def asked(run: Run, *ids: str) -> None:
    """Wait until exactly these calls are pending, whichever asked first: bodies run at the same time."""
    async with asyncio.timeout(20):
        while sorted(item.tool_call_id for item in await run.pending()) != sorted(ids):
            await asyncio.sleep(0.1)  # where no run is cached, each look costs a replay


async def around(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
    decision = ctx.decision(call) if call.name == "look" else None
    if call.name == "look" and decision is None:
        raise HitlInterrupt(call.name, call.args)
    return await call_next(call)


@pytest.mark.parametrize("cached", [1000, 0])
async def test_answers_in_any_order_from_hooks_and_tools_reach_their_own_calls(cached: int) -> None:
    """AC-67, AC-72, D27 to D30; with no cache every task replays the run from its start."""
    batch = calls(ASK, call("look", n=1), call("risky", n=2), call("risky", n=3), call("publish", title="b"))
    stack = (human_in_the_loop({"publish": True}), create_middleware("around", around_tool=around))
    async with local_env([made("a", [batch, "done"], *stack)], max_cached_runs=cached) as env:
        run = await env.client.start("a", "go")
        await asked(run, "call_1_1", "call_1_5")
        await run.decide("call_1_5", {"edit": {"title": "c"}}, by="bob")
        await run.decide("call_1_1", {"reject": "not that"}, by="alice")
        await asked(run, "call_1_2", "call_1_3", "call_1_4")
        await run.decide("call_1_4", {"edit": {"n": 30}})
        await run.decide("call_1_2", {"edit": {"n": 10}})
        with pytest.raises(DecisionRefused, match="nothing pending is called"):
            await run.decide("call_1_2", "approve")
        await run.decide("call_1_3", "approve")
        result = await run.result()
        first, second, third, fourth, fifth = results(result)
        assert (first, third) == ("not that", "did 2 (approve)")
        assert second.endswith("saw 10")
        assert fourth.endswith("did 30 (edit)")
        assert fifth.endswith("published c")
        assert [record.tool_call_id[-1] for record in result.audit] == ["5", "1", "4", "2", "3"]


ASKED: list[Any] = []


@side_effect
def by_policy(request: dict[str, Any]) -> Any:
    ASKED.append(request)
    return "approve" if request["args"]["title"] == "draft" else {"reject": "not that one"}


async def test_a_decide_with_side_effects_is_asked_once_per_call_however_often_the_run_is_replayed() -> None:
    """D25, AC-56: no run stays cached here, so that every task replays from the start."""
    ASKED.clear()
    gate = human_in_the_loop({"publish": True}, decide=by_policy)
    agent = made("b", [calls(ASK, call("publish", title="b")), ASK, "done"], gate)
    async with local_env([agent], max_cached_runs=0) as env:
        result = await (await env.client.start("b", "go")).result()
    assert results(result) == ["published draft", "not that one", "published draft"]
    assert [(item["tool"], item["tool_call_id"]) for item in ASKED] == [
        ("publish", "call_1_1"),
        ("publish", "call_1_2"),
        ("publish", "call_2_1"),
    ]


async def test_with_no_answer_within_a_second_the_configured_decision_is_taken_after_a_reminder() -> None:
    options: dict[str, Any] = {
        "publish": {"timeout_seconds": 1, "reminder_seconds": 0.4},
        "look": {"timeout_seconds": 1, "on_timeout": "approve"},
    }
    agent = made("a", [calls(ASK, call("look", n=1)), "done"], human_in_the_loop(options))
    async with local_env([agent]) as env:
        run = await env.client.start("a", "go")
        result = await run.result()
        assert results(result) == ["Nobody decided in time.", "saw 1"]
        assert [record.decision.by for record in result.audit] == ["outlast:timeout"] * 2
        kinds = [event.kind async for event in run.events() if isinstance(event, Event)]
        assert kinds.count("interrupt.reminded") == 1
        assert kinds.index("interrupt.reminded") < kinds.index("interrupt.decided")


async def test_thirty_days_of_silence_pass_over_handovers_and_end_in_a_rejection() -> None:
    gate = human_in_the_loop({"publish": {"timeout_seconds": 30 * 86_400, "reminder_seconds": 86_400}})
    async with local_env([made("a", [ASK, "done"], gate)], time_skipping=True) as env:
        run = await env.client.start("a", "go")
        assert results(await run.result()) == ["Nobody decided in time."]


@pytest.mark.no_replay  # the hook is another one after the resume, as after a deploy
async def test_a_decision_made_while_the_run_is_parked_waits_for_the_resume() -> None:
    """A sibling call failed in a hook; the other's question is answered meanwhile."""
    failing = [True]

    async def fragile(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        if call.name == "look" and failing:
            raise RuntimeError("not now")
        return await call_next(call)

    batch = calls(call("risky", n=2), call("look", n=1))
    async with local_env([made("a", [batch, "done"], create_middleware("fragile", around_tool=fragile))]) as env:
        run = await env.client.start("a", "go")
        with pytest.raises(AgentRunPaused, match="not now"):
            await run.result()
        [pending] = await run.pending()
        assert pending.description == "really?"
        await run.decide("risky", "approve")
        assert (await run.info()).status == "paused"
        failing.clear()
        await run.resume()
        assert results(await run.result()) == ["did 2 (approve)", "saw 1"]


async def test_suspend_keeps_waiting_and_a_refused_answer_leaves_no_event() -> None:
    gate = human_in_the_loop({"publish": {"allowed_decisions": ["approve"]}})
    async with local_env([made("a", [ASK, "done"], gate)]) as env:
        run = await env.client.start("a", "go")
        await asked(run, "call_1_1")
        handle = env.temporal.get_workflow_handle(run.id)
        length = (await handle.describe()).history_length
        for refused in ({"reject": "no"}, {"edit": {"title": "x"}}):
            with pytest.raises(DecisionRefused, match="allowed: approve"):
                await run.decide("publish", refused)
        with pytest.raises(DecisionRefused, match="is not a decision"):
            await run.decide("publish", "aprove")
        assert (await handle.describe()).history_length == length
        await run.decide("publish", {"suspend": True})
        await asked(run, "call_1_1")
        await run.decide("publish", "approve")
        assert results(await run.result()) == ["published draft"]


async def test_the_next_decision_works_on_another_worker() -> None:
    async with local_env([made("a", [ASK, "done"], human_in_the_loop({"publish": True}))]) as env:
        run = await env.client.start("a", "go")
        await asked(run, "call_1_1")
        await env.stop_worker()
        await env.start_worker()
        await run.decide("publish", "approve", by="alice")
        assert results(await run.result()) == ["published draft"]


async def test_standing_decisions_and_reasons_survive_a_handover_while_waiting() -> None:
    """AC-63, AC-66, D23, D24."""
    replies: list[Reply] = [ASK, call("look", n=1), call("publish", title="x"), call("look", n=2), "done"]
    gate = human_in_the_loop({"publish": True, "look": True})
    async with local_env([made("a", replies, gate)], continue_as_new_events=15) as env:
        state: dict[str, Any] = {"__hitl_decisions": {"look": "approve"}}
        run = await env.client.start("a", "go", invocation_state=state)
        for step, reason in ((1, "first"), (3, "second")):
            await asked(run, f"call_{step}_1")
            handle = env.temporal.get_workflow_handle(run.id)
            for _ in range(20):  # a handover while it waits
                await handle.signal("decide", {"interrupt": "nobody", "decision": "approve"})
            await asked(run, f"call_{step}_1")
            await run.decide("publish", {"reject": reason})
        result = await run.result()
        assert results(result) == ["first", "saw 1", "second", "saw 2"]
        assert result.invocation_state == state
        executions = [found async for found in env.temporal.list_workflows(f"WorkflowId = '{run.id}'")]
        assert len(executions) > 2


async def test_a_tool_that_refuses_is_a_rejection_and_an_interrupt_that_cannot_be_shown_an_error() -> None:
    @tool
    def refuses() -> str:
        """Refuse."""
        raise ToolRejection("out of hours")

    @tool
    def asks() -> str:
        """Ask with what nobody can be shown."""
        raise HitlInterrupt("asks", {"x": object()})

    model = ScriptedModel([calls(call("refuses"), call("asks")), "done"])
    async with local_env([Agent(AgentOptions(name="a", model=model, tools=[refuses, asks]))]) as env:
        result = await (await env.client.start("a", "go")).result()
        first, second = (found for message in result.messages for found in message.tool_results)
        assert (first.text, first.status) == ("out of hours", "rejected")
        assert (second.is_error, second.status) == (True, "failed")
