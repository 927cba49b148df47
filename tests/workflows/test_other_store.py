"""A worker whose storage directory is not the others' (a disk that is not mounted) decides nothing; the run goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.worker import Worker

from outlast import Agent, AgentOptions, AgentPlugin, tool
from outlast.middleware import human_in_the_loop
from outlast.run import Run
from outlast.settings import Settings, connect
from outlast.testing import LocalEnv, ScriptedModel, call, calls, local_env, text

FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED


@tool
async def read() -> str:
    """Read something long."""
    await asyncio.sleep(0)
    return "x" * 20_000


@tool
async def publish() -> str:
    """Publish."""
    await asyncio.sleep(0)
    return "published"


@tool(idempotent=False)
async def pay() -> str:
    """Pay, just before the storage is away for a second."""
    store = Path(os.environ["PAID_INTO"])
    away = store.with_name("away")
    await asyncio.to_thread(store.rename, away)
    asyncio.get_running_loop().call_later(1.0, away.rename, store)
    return "p" * 20_000


def reader(name: str) -> Agent:
    model = ScriptedModel([call("read"), calls(call("read"), call("publish")), text("done")] * 5)
    gate = human_in_the_loop({"publish": True})
    return Agent(AgentOptions(name=name, model=model, tools=[read, publish], middleware=[gate]))


@asynccontextmanager
async def stranger(env: LocalEnv, folder: Path) -> AsyncIterator[None]:
    """A worker of the same queue over a directory of its own, in place of the environment's worker."""
    await env.stop_worker()
    client = await connect(Settings.load(address=env.address, storage=f"dir://{folder}", environ={}))
    async with Worker(client, task_queue=env.task_queue, plugins=[AgentPlugin(env.agents)]):
        yield
    await env.start_worker()


async def failed_tasks(run: Run) -> list[str]:
    """What the run's failed workflow tasks say."""
    history = await run.temporal.get_workflow_handle(run.id).fetch_history()
    failures = [e.workflow_task_failed_event_attributes.failure for e in history.events if e.event_type == FAILED]
    return [failure.message for failure in failures]


async def until_failed(run: Run) -> str:
    async with asyncio.timeout(20):
        while not (found := await failed_tasks(run)):
            await asyncio.sleep(0.1)
    return found[0]


async def test_results_in_another_store_are_left_to_a_worker_that_has_it(tmp_path: Path) -> None:
    async with local_env([reader("mounted")], storage=tmp_path / "ours") as env:
        run = await env.client.start("mounted", "go")
        while not await run.pending():
            await asyncio.sleep(0.05)
        async with stranger(env, tmp_path / "empty"):
            await run.temporal.get_workflow_handle(run.id).signal(
                "decide", {"interrupt": "publish", "decision": "approve"}
            )
            assert "another store" in await until_failed(run)
        result = await run.result()
    assert [len(block.text) for message in result.messages for block in message.tool_results] == [20_000, 20_000, 9]


async def test_a_state_in_another_store_is_left_to_a_worker_that_has_it(tmp_path: Path) -> None:
    async with local_env([reader("carried")], storage=tmp_path / "ours", continue_as_new_events=8) as env:
        run = await env.client.start("carried", "go")
        while not await run.pending():
            await asyncio.sleep(0.05)
        async with stranger(env, tmp_path / "empty"):
            await run.temporal.get_workflow_handle(run.id).signal(
                "decide", {"interrupt": "publish", "decision": "approve"}
            )
            assert "another store" in await until_failed(run)
        assert (await run.result()).output == "done"


async def test_what_a_tool_did_once_is_known_though_the_storage_was_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAID_INTO", str(tmp_path / "ours"))
    payer = Agent(AgentOptions(name="payer", model=ScriptedModel([call("pay"), text("done")]), tools=[pay]))
    async with local_env([payer], storage=tmp_path / "ours") as env:
        result = await (await env.client.start("payer", "go")).result()
    [block] = [block for message in result.messages for block in message.tool_results]
    assert (block.status, block.text) == ("executed", "p" * 20_000)
