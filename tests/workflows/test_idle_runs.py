"""Runs that wait for people leave the worker's memory, and a decision brings them back."""

from __future__ import annotations

import asyncio

import pytest

from outlast import Agent, AgentOptions, AgentRunPaused, HookContext, create_middleware, tool
from outlast.middleware import human_in_the_loop
from outlast.model import ModelRequest
from outlast.testing import LocalEnv, ScriptedModel, call, local_env
from outlast.workflows.idle import idle_executions


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def publisher(name: str, *middleware: object) -> Agent:
    model = ScriptedModel([call("publish", title="x"), "done"] * 20)
    return Agent(AgentOptions(name=name, model=model, tools=[publish], middleware=middleware))


async def until_let_go(env: LocalEnv) -> None:
    """Until the worker has had a run that waits, and has it no more."""
    for wanted in (True, False):
        async with asyncio.timeout(10):
            while bool(idle_executions(env.task_queue)) is not wanted:
                await asyncio.sleep(0.02)


@pytest.mark.usefixtures("replay_every_run")
async def test_a_run_that_waits_is_let_go_and_a_decision_brings_it_back() -> None:
    agent = publisher("waiter", human_in_the_loop({"publish": True}))
    async with local_env([agent], idle_seconds=0.3) as env:
        run = await env.client.start("waiter", "go")
        for _ in range(2):  # a look at it brings it back too, and it is let go again
            await until_let_go(env)
            assert (await run.info()).status == "suspended"
            assert [item.tool for item in await run.pending()] == ["publish"]
        await until_let_go(env)
        await run.decide("publish", "approve", by="alice")
        assert (await run.result()).output == "done"


async def test_a_parked_run_is_let_go_too() -> None:
    broken = True

    def fail(request: ModelRequest, ctx: HookContext) -> None:
        if broken:
            raise ValueError("not yet")

    async with local_env([publisher("parked", create_middleware("fails", before_model=fail))], idle_seconds=0.3) as env:
        run = await env.client.start("parked", "go")
        gone = asyncio.create_task(until_let_go(env))
        with pytest.raises(AgentRunPaused, match="not yet"):
            await run.result()
        await gone
        broken = False
        await run.resume()
        assert (await run.result()).output == "done"
