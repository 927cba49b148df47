"""The testing kit: a real server, time that is skipped, and replay in another process."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from outlast import Agent, AgentOptions, HookContext, create_middleware, tool
from outlast.client import Run
from outlast.middleware import human_in_the_loop
from outlast.model import ModelRequest
from outlast.testing import ReplayFailed, ScriptedModel, call, local_env, replay
from tests.workflows.agents import editor


async def wait_pending(run: Run) -> None:
    while not await run.pending():
        assert not (info := await run.info()).error, info
        await asyncio.sleep(0.02)


async def test_a_run_of_an_importable_agent_replays_in_another_process() -> None:
    async with local_env([editor]) as env:
        run = await env.client.start("editor", "hi")
        await wait_pending(run)
        await run.decide("publish", "approve", by="alice")
        result = await run.result()
        assert result.output == "done"
        assert result.invocation_state["calls"] == 3
        await replay(env.agents, await env.histories())


async def test_time_is_skipped_so_that_a_thirty_day_wait_takes_a_moment() -> None:
    @tool
    def spend(euros: int) -> str:
        """Spend."""
        return "spent"

    gate = human_in_the_loop({"spend": {"timeout_seconds": 30 * 86_400.0}})
    model = ScriptedModel([call("spend", euros=5), "done"])
    agent = Agent(AgentOptions(name="patient", model=model, tools=[spend], middleware=[gate]))
    async with local_env([agent], time_skipping=True) as env:
        began = time.monotonic()
        result = await (await env.client.start("patient", "go")).result()
        assert result.output == "done"
        assert result.audit[0].decision.by == "outlast:timeout"
        assert result.messages[2].tool_results[0].status == "rejected"
        assert time.monotonic() - began < 20
        await replay(env.agents, await env.histories())


async def test_a_restarted_worker_replays_the_open_run_and_goes_on() -> None:
    async with local_env([editor]) as env:
        run = await env.client.start("editor", "hi")
        await wait_pending(run)
        await env.stop_worker()
        await env.start_worker()
        await run.decide("publish", {"edit": {"title": "y"}})
        texts = [result.text for message in (await run.result()).messages for result in message.tool_results]
        assert any(text.endswith("published y") for text in texts)


async def test_a_hook_that_is_not_deterministic_fails_the_replay_by_the_runs_name() -> None:
    luck = itertools.count()

    async def sometimes_sleep(request: ModelRequest, ctx: HookContext) -> None:
        if next(luck) == 0:  # the first time only: what a replay will not see again
            await ctx.sleep(0.01)

    moody = create_middleware("moody", before_model=sometimes_sleep)
    agent = Agent(AgentOptions(name="moody", model=ScriptedModel(["hi"]), middleware=[moody]))
    async with local_env([agent]) as env:
        run = await env.client.start("moody", "go", id="moody-run")
        await run.result()
        with pytest.raises(ReplayFailed, match="moody-run"):
            await replay(env.agents, await env.histories())
