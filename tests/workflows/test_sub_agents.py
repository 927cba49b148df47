"""Sub-agents on a real server: detached runs that outlive their parent's executions and are decided at the parent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast import Agent, AgentOptions, AgentRunFailed, tool
from outlast.middleware import SubAgent, create_sub_agent_middleware, human_in_the_loop
from outlast.model import ModelRequest
from outlast.run import Run
from outlast.testing import ScriptedModel, call, calls, local_env, text
from outlast.testing.scripted import Reply

pytestmark = pytest.mark.usefixtures("replay_every_run")


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def child_turn(request: ModelRequest) -> Reply:
    last = request.messages[-1]
    return call("publish", title=last.text) if last.role == "user" else text(last.tool_results[0].text)


def team(count: int, replies: list[Reply] | None = None) -> Agent:
    writer = SubAgent(
        name="writer",
        description="writes",
        tools=[publish],
        middleware=[human_in_the_loop({"publish": True})],
    )
    tasks = [call("task", description=f"t{n}", subagent_type="writer") for n in range(count)]
    middleware = create_sub_agent_middleware(ScriptedModel(replies or [child_turn] * (4 * count)), [writer])
    return Agent(AgentOptions(name="editor", model=ScriptedModel([calls(*tasks), "done"]), middleware=[middleware]))


async def wait_pending(run: Run, count: int) -> list[Any]:
    while len(pending := await run.pending()) < count:
        assert not (info := await run.info()).error, info
        await asyncio.sleep(0.05)
    return pending


async def test_twenty_children_are_decided_in_any_order_while_the_parent_continues_as_new() -> None:
    """AC-118: none is lost."""
    async with local_env([team(20)], continue_as_new_events=60) as env:
        run = await env.client.start("editor", "go")
        pending = await wait_pending(run, 20)
        assert {item.path for item in pending} == {("writer",)}
        for item in sorted(pending, key=lambda item: item.args["title"], reverse=True):
            await run.decide(item.tool_call_id, "approve", by="alice")
        result = await run.result()
        answers = [found.text for message in result.messages for found in message.tool_results]
        assert answers == [f"published t{n}" for n in range(20)]
        assert result.usage.model_calls == 42
        assert len(result.audit) == 20
        assert len([run for run in await env.client.runs() if run.id.startswith(f"{run.id}/")]) >= 0


@pytest.mark.parametrize(
    ("decision", "expected"),
    [("approve", "published t0"), ({"edit": {"title": "better"}}, "published better"), ({"reject": "no"}, "no")],
)
async def test_approve_edit_and_reject_reach_the_child(decision: Any, expected: str) -> None:
    """D22."""
    async with local_env([team(1)]) as env:
        run = await env.client.start("editor", "go")
        [pending] = await wait_pending(run, 1)
        async with asyncio.timeout(20):  # the server lists a changed memo a moment later
            while [item.path for item in await env.client.pending() if item.run_id == run.id] != [("writer",)]:
                await asyncio.sleep(0.05)
        await run.decide(pending.tool_call_id, decision)
        result = await run.result()
        assert expected in result.messages[2].tool_results[0].text


async def test_cancelling_the_parent_cancels_its_children() -> None:
    async with local_env([team(2)]) as env:
        run = await env.client.start("editor", "go")
        await wait_pending(run, 2)
        await run.cancel()
        with pytest.raises(AgentRunFailed, match="CANCELLED"):
            await run.result()
        for number in (1, 2):
            with pytest.raises(AgentRunFailed, match="CANCELLED"):
                await env.client.get(f"{run.id}/call_1_{number}").result()


async def test_a_child_that_was_terminated_is_noticed_and_answered_with_an_error() -> None:
    async with local_env([team(1)], time_skipping=False) as env:
        run = await env.client.start("editor", "go")
        await wait_pending(run, 1)
        await env.temporal.get_workflow_handle(f"{run.id}/call_1_1").terminate("by hand")
        await env.temporal.get_workflow_handle(run.id).signal("report")  # refused and noted: nobody's sub-agent
        assert [item.tool for item in await run.pending()] == ["publish"]
        await run.decide("publish", "approve")  # sent on to nobody, which the parent notices
        result = await run.result()
        assert "its run is gone" in result.messages[2].tool_results[0].text


async def test_a_child_can_be_asked_itself() -> None:
    async with local_env([team(1)]) as env:
        run = await env.client.start("editor", "go")
        await wait_pending(run, 1)
        await env.client.get(f"{run.id}/call_1_1").decide("publish", "approve", by="bob")
        result = await run.result()
        assert result.output == "done"
