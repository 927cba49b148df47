"""What limits, todo lists and selections remember crosses continue-as-new and worker restarts on a real server."""

from __future__ import annotations

import asyncio
import json

import pytest

from outlast import Agent, AgentOptions, AgentRunFailed, tool
from outlast.middleware import (
    human_in_the_loop,
    list_todos,
    llm_tool_selector_middleware,
    model_call_limit,
    policy_filter,
    todo_list,
    tool_call_limit,
)
from outlast.run import Run
from outlast.testing import LocalEnv, ScriptedModel, call, calls, local_env
from outlast.testing.scripted import Reply

pytestmark = pytest.mark.usefixtures("replay_every_run")


@tool
def look(n: int) -> str:
    """Look."""
    return f"saw {n}"


@tool
def publish(n: int) -> str:
    """Publish."""
    return f"published {n}"


async def executions(env: LocalEnv, run: Run) -> int:
    return len({history.run_id for history in await env.histories() if history.workflow_id == run.id})


async def test_counts_todos_and_selections_survive_continue_as_new() -> None:
    """AC-51, AC-114, AC-115."""
    selector = ScriptedModel([json.dumps({"tools": ["look", "write_todos"]})])
    todos = call("write_todos", todos=[{"content": "look often", "status": "in_progress"}])
    looks: list[Reply] = [calls(call("look", n=n), call("look", n=-n)) for n in range(1, 11)]
    model = ScriptedModel([todos, *looks, "done"])
    hooks = [tool_call_limit("look", 7, "continue"), todo_list(), llm_tool_selector_middleware(selector, 2)]
    agent = Agent(AgentOptions(name="counting", model=model, tools=[look, publish], middleware=hooks))
    async with local_env([agent], continue_as_new_events=25) as env:
        run = await env.client.start("counting", "go")
        result = await run.result()
        assert await executions(env, run) > 2
    statuses = [answer.status for message in result.messages for answer in message.tool_results]
    assert statuses == ["executed"] * 8 + ["rejected"] * 13
    assert list_todos(result) == [{"content": "look often", "status": "in_progress"}]
    assert len(selector.requests) == 1
    assert all([spec.name for spec in request.tools] == ["write_todos", "look"] for request in model.requests)


async def test_a_place_that_waits_for_a_person_is_held_over_continue_as_new_and_a_restart() -> None:
    """AC-49, AC-50: in parallel batches, in call order."""
    batch = calls(call("publish", n=1), call("look", n=2), call("publish", n=3), call("look", n=4))
    model = ScriptedModel([batch, call("look", n=5), "done"])
    hooks = [
        policy_filter(deny=["nothing"]),
        tool_call_limit(None, 3, "continue"),
        human_in_the_loop({"publish": True}),
    ]
    agent = Agent(AgentOptions(name="holding", model=model, tools=[look, publish], middleware=hooks))
    async with local_env([agent], continue_as_new_events=5) as env:
        run = await env.client.start("holding", "go")
        while len(await run.pending()) < 2:
            await asyncio.sleep(0.02)
        await env.stop_worker()
        await env.start_worker()
        await run.decide("call_1_1", "approve")
        await run.decide("call_1_3", {"reject": "no"})
        result = await run.result()
    statuses = [answer.status for message in result.messages for answer in message.tool_results]
    assert statuses == ["executed", "executed", "rejected", "rejected", "executed"]


async def test_the_step_that_the_model_limit_counts_goes_on_over_continue_as_new() -> None:
    """AC-24, AC-43, AC-44."""
    model = ScriptedModel([call("look", n=n) for n in range(50)])
    agent = Agent(AgentOptions(name="bounded", model=model, tools=[look], middleware=[model_call_limit(9)]))
    async with local_env([agent], continue_as_new_events=20) as env:
        run = await env.client.start("bounded", "go")
        with pytest.raises(AgentRunFailed, match="BUDGET_EXCEEDED"):
            await run.result()
        assert await executions(env, run) > 1
    assert len(model.requests) == 9
