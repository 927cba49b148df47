"""Replays what ran, in another process under another hash seed and time zone: what a worker restart would do.

Agents that a module holds by name are imported again in that process. Agents made inside a test function exist in
this process alone and are replayed here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from outlast.agent import Agent
from outlast.plugin import AgentPlugin
from outlast.settings import Settings, data_converter


class ReplayFailed(AssertionError):
    """A history does not replay: a hook or the code around it is not deterministic, or was changed."""


class ReplayJob(BaseModel):
    """What the other process is given: where the agents are, and the histories as JSON text."""

    path: list[str]
    agents: list[tuple[str, str]]
    histories: list[tuple[str, str]]
    storage: str | None = None


async def replay(agents: Sequence[Agent], histories: Iterable[WorkflowHistory], *, storage: str | None = None) -> None:
    """Replay histories against the agents as they are now.

    Args:
        storage: The storage's URL, where payloads were kept outside the histories.

    Raises:
        ReplayFailed: The first history that does not replay, and what differs.
    """
    found = [history for history in histories if history.events]
    places = [_place(agent) for agent in agents]
    if not found:
        return
    if any(place is None for place in places):
        await _here(agents, found, storage)
        return
    job = ReplayJob(
        path=[entry for entry in sys.path if entry],
        agents=[place for place in places if place is not None],
        histories=[(history.workflow_id, history.to_json()) for history in found],
        storage=storage,
    )
    await _elsewhere(job)


async def _here(agents: Sequence[Agent], histories: Sequence[WorkflowHistory], storage: str | None) -> None:
    converter = data_converter(Settings.load(storage=storage, environ={}))
    replayer = Replayer(workflows=[], plugins=[AgentPlugin(agents)], data_converter=converter)
    for history in histories:
        result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
        if result.replay_failure is not None:
            raise ReplayFailed(f"run {history.workflow_id!r} does not replay: {result.replay_failure}")


async def _elsewhere(job: ReplayJob) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "job.json")
        file.write_text(job.model_dump_json())  # noqa: ASYNC240 - a moment, in a test
        zone = "Asia/Kathmandu" if os.environ.get("TZ") != "Asia/Kathmandu" else "UTC"
        env = {**os.environ, "PYTHONHASHSEED": "4242", "TZ": zone}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "outlast.testing.replay",
            str(file),
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    if process.returncode != 0:
        raise ReplayFailed(output.decode(errors="replace").strip()[-4000:])


def _place(agent: Agent) -> tuple[str, str] | None:
    """Module and attribute of an agent that another process can import."""
    module = sys.modules.get(agent.module)
    if module is None or agent.module == "__main__" or not getattr(module, "__file__", None):
        return None
    return next(((agent.module, name) for name, value in vars(module).items() if value is agent), None)


async def _run(job: ReplayJob) -> None:
    import importlib

    sys.path[:] = job.path
    agents = [getattr(importlib.import_module(module), name) for module, name in job.agents]
    histories = [WorkflowHistory.from_json(run_id, text) for run_id, text in job.histories]
    await _here(agents, histories, job.storage)


def main() -> None:
    """The other process."""
    job = ReplayJob.model_validate(json.loads(Path(sys.argv[1]).read_text()))
    try:
        asyncio.run(_run(job))
    except ReplayFailed as error:
        sys.stdout.write(str(error))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
