"""The testing kit: a real server, time that is skipped, and replay in another process."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path

import pytest

from outlast import Agent, AgentOptions, HookContext, create_middleware, tool
from outlast.devserver import DevServer
from outlast.middleware import human_in_the_loop
from outlast.model import ModelRequest
from outlast.run import Run
from outlast.testing import LocalEnv, ReplayFailed, ScriptedModel, call, local_env, replay
from outlast.testing.scripted import Reply
from tests.workflows.agents import editor
from tests.workflows.unordered_agents import asker, keeper


async def wait_pending(run: Run) -> None:
    while not await run.pending():
        assert not (info := await run.info()).error, info
        await asyncio.sleep(0.02)


@tool
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page} " + "x" * 5000


def reader(pages: int) -> Agent:
    script: list[Reply] = [*(call("look", page=page) for page in range(pages)), "read"]
    return Agent(AgentOptions(name="reader", model=ScriptedModel(script), tools=[look]))


async def test_a_run_of_an_importable_agent_replays_in_another_process() -> None:
    async with local_env([editor]) as env:
        run = await env.client.start("editor", "hi")
        await wait_pending(run)
        await run.decide("publish", "approve", by="alice")
        result = await run.result()
        assert result.output == "done"
        assert result.invocation_state["calls"] == 3
        await replay(env.agents, run)


async def test_all_environments_share_one_server(local_server: DevServer) -> None:
    async with local_env([reader(1)]) as one, local_env([reader(1)]) as two:
        assert one.address == two.address == local_server.address
        assert one.task_queue != two.task_queue


async def test_a_thirty_day_wait_takes_under_a_second() -> None:
    @tool
    def spend(euros: int) -> str:
        """Spend."""
        return "spent"

    gate = human_in_the_loop({"spend": {"timeout_seconds": 30 * 86_400.0}})
    model = ScriptedModel([call("spend", euros=5), "done"])
    agent = Agent(AgentOptions(name="patient", model=model, tools=[spend], middleware=[gate]))
    async with local_env([agent], time_skipping=True) as env:
        result = await (await env.client.start("patient", "go")).result()
        assert result.output == "done"
        [decided] = result.audit
        assert decided.decision.by == "outlast:timeout"
        assert (decided.at - result.messages[1].created_at).days == 30  # type: ignore[operator] # it is dated
        assert result.messages[2].tool_results[0].status == "rejected"
        await env.replay()


async def test_a_restarted_worker_replays_the_open_run_and_goes_on() -> None:
    async with local_env([editor]) as env:
        run = await env.client.start("editor", "hi")
        await wait_pending(run)
        await env.stop_worker()
        await env.start_worker()
        await run.decide("publish", {"edit": {"title": "y"}})
        texts = [result.text for message in (await run.result()).messages for result in message.tool_results]
        assert any(text.endswith("published y") for text in texts)


async def test_a_worker_without_a_cache_replays_every_task_from_the_start() -> None:
    async with local_env([reader(5)], max_cached_runs=0) as env:
        assert (await (await env.client.start("reader", "go")).result()).output == "read"
        await env.replay()


async def test_every_execution_of_a_run_is_replayed(tmp_path: Path) -> None:
    async with local_env([reader(8)], storage=tmp_path, continue_as_new_events=30) as env:
        run = await env.client.start("reader", "go")
        assert (await run.result()).steps == 9
        histories = await env.histories()
        assert len(histories) > 1
        assert {history.workflow_id for history in histories} == {run.id}
        await replay(env.agents, run)


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
        with pytest.raises(ReplayFailed, match=r"'moody-run'.*timer started .*moody.*something else"):
            await replay(env.agents, await env.histories())


@pytest.mark.parametrize(("agent", "what"), [(asker, "input of activity 's0001.model'"), (keeper, "the run's result")])
async def test_the_order_of_a_set_is_found_although_temporal_replays_it(agent: Agent, what: str) -> None:
    async with local_env([agent]) as env:
        run = await env.client.start(agent.name, "go")
        await run.result()
        await replay(env.agents, run, exact=False)
        with pytest.raises(ReplayFailed, match=f"{what}.* is different"):
            await replay(env.agents, run)


async def test_a_replay_is_made_with_the_agents_given_not_with_those_of_a_running_worker() -> None:
    async def pause_first(request: ModelRequest, ctx: HookContext) -> None:
        await ctx.sleep(0.01)

    changed = AgentOptions(
        name="reader",
        model=ScriptedModel([]),
        tools=[look],
        middleware=[create_middleware("pause_first", before_model=pause_first)],
    )
    async with local_env([reader(1)]) as env:
        run = await env.client.start("reader", "go")
        await run.result()
        with pytest.raises(ReplayFailed, match=r"s0001\.model.*something else"):
            await replay([Agent(changed)], run)


async def test_an_environment_closes_at_once_although_a_tool_is_still_at_work() -> None:
    busy = asyncio.Event()

    @tool
    async def brood() -> str:
        """Takes for ever."""
        busy.set()
        await asyncio.sleep(3600)
        return ""

    agent = Agent(AgentOptions(name="brooder", model=ScriptedModel([call("brood")]), tools=[brood]))
    async with local_env([agent]) as env:
        await env.client.start("brooder", "go")
        await busy.wait()
        began = time.monotonic()
    assert time.monotonic() - began < 20  # the tool's own limit is five minutes


@pytest.fixture
async def envs(replay_every_run: list[LocalEnv]) -> list[LocalEnv]:
    return replay_every_run


async def test_the_fixture_knows_the_environments_of_a_test(envs: list[LocalEnv]) -> None:
    async with local_env([reader(1)]) as env:
        assert envs == [env]
        await (await env.client.start("reader", "go")).result()


CONFTEST = """
import pytest

@pytest.fixture(autouse=True)
def replayed(replay_every_run): ...
"""
PROJECT_TEST = """
import pytest
from outlast import Agent, AgentOptions, create_middleware
from outlast.testing import ScriptedModel, local_env

def hook(request, ctx):
    ctx.invocation_state["words"] = list({"red", "orange", "yellow", "green", "blue", "indigo", "violet"})

options = AgentOptions(name="a", model=ScriptedModel(["x"] * 9), middleware=[create_middleware("h", before_model=hook)])
agent = Agent(options)

async def test_found():
    async with local_env([agent]) as env:
        assert (await (await env.client.start("a", "hi", id="found")).result()).output == "x"

@pytest.mark.no_replay
async def test_let_off():
    async with local_env([agent]) as env:
        assert (await (await env.client.start("a", "hi", id="let-off")).result()).output == "x"
"""


async def test_a_project_has_every_run_replayed_even_of_modules_that_no_name_leads_to(tmp_path: Path) -> None:
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\naddopts = --import-mode=importlib\n")
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "tests" / "deep" / "test_it.py").write_text(PROJECT_TEST)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    output = (await process.communicate())[0].decode()
    assert "2 passed, 1 error" in output
    assert "ReplayFailed: run 'found'" in output
    assert "the run's result is different" in output
