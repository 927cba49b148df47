"""The sandbox guards hooks: a clock, luck, the environment or a file in a hook parks the run and names the hook."""

from __future__ import annotations

import asyncio
import time

import pytest

from outlast import Agent, AgentOptions, AgentRunPaused, tool
from outlast.run import Run
from outlast.testing import ScriptedModel, call, calls, local_env
from tests.workflows.doubtful_agents import doubtful, told
from tests.workflows.naughty_agents import AGENTS, NAUGHTY, POINTS, good


async def paused(run: Run) -> AgentRunPaused:
    with pytest.raises(AgentRunPaused) as caught:
        await run.result()
    return caught.value


async def test_what_would_not_replay_parks_the_run_and_names_the_hook() -> None:
    async with local_env([*AGENTS.values(), good]) as env:
        runs = {name: await env.client.start(name, "go") for name in AGENTS}
        errors = dict(zip(runs, await asyncio.gather(*map(paused, runs.values())), strict=True))
        for what in NAUGHTY:
            error = errors[f"by {what}"]
            assert error.where == "before_tool of 'naughty'", (what, error)
            assert "RestrictedWorkflowAccessError" in error.error, (what, error)
            assert "ctx.now()" in error.error
        for point in POINTS:
            assert errors[f"at {point}"].where == f"{point} of 'naughty'", point


async def test_what_a_module_does_while_it_is_imported_and_what_tools_do_is_free() -> None:
    async with local_env([good]) as env:
        run = await env.client.start("good", "go")
        result = await run.result()
        assert result.invocation_state == {
            "imported": ["clock", "date", "environment", "id", "luck", "own file", "variable"],
            "given": [True, True, 36],
        }
        assert result.messages[2].tool_results[0].text == "did a at True"
        await env.replay()


async def test_synchronous_tools_never_block_the_workers_loop() -> None:
    """Three of them sleep for real; the loop that runs the model calls of another run ticks on."""

    @tool
    def sleepy(n: int) -> str:
        """Block a thread."""
        time.sleep(0.5)
        return f"slept {n}"

    model = ScriptedModel([calls(*(call("sleepy", n=n) for n in range(3))), "done"])
    async with local_env([Agent(AgentOptions(name="a", model=model, tools=[sleepy]))]) as env:
        longest, last, over = 0.0, time.monotonic(), asyncio.Event()

        async def tick() -> None:
            nonlocal longest, last
            while not over.is_set():
                await asyncio.sleep(0.005)
                longest, last = max(longest, time.monotonic() - last), time.monotonic()

        ticking = asyncio.create_task(tick())
        result = await (await env.client.start("a", "go")).result()
        over.set()
        await ticking
        assert [r.text for m in result.messages for r in m.tool_results] == ["slept 0", "slept 1", "slept 2"]
        assert longest < 0.4


async def test_an_order_of_middlewares_is_warned_of_by_the_worker_and_not_again_by_each_run() -> None:
    assert len(told) == 1
    async with local_env([doubtful]) as env:
        result = await (await env.client.start("doubtful", "go")).result()
    assert result.invocation_state["warnings"] == 0
