"""The process in which runs are replayed: one job per line of standard input, one answer per line of standard output.

It lives as long as the process that started it, so that modules are imported once, not once per test.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO

from pydantic import BaseModel
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from outlast.agent import Agent
from outlast.keyring import KEYS
from outlast.plugin import AgentPlugin
from outlast.settings import Settings, data_converter
from outlast.testing.recorder import Recorder, first_difference
from outlast.workflows.module_finder import remember_file


class Place(BaseModel):
    """Where a module holds an agent."""

    module: str
    file: str
    attribute: str


class ReplayJob(BaseModel):
    """What to replay: where the agents are, and the histories as JSON text beside their workflow ids.

    Attributes:
        encryption: The keys, as :meth:`outlast.keyring.Keyring.to_text` writes them.
    """

    path: list[str]
    agents: list[Place]
    histories: list[tuple[str, str]]
    storage: str | None = None
    encryption: str | None = None
    exact: bool = True


class ReplayAnswer(BaseModel):
    """How it went: the text of the first failure, or None."""

    failure: str | None = None


async def check_histories(
    agents: Sequence[Agent],
    histories: Sequence[WorkflowHistory],
    storage: str | None,
    exact: bool,
    encryption: str | None = None,
) -> str | None:
    """Replay in this process; the first failure in words, or None."""
    keys = {} if encryption is None else {KEYS: encryption}
    converter = data_converter(Settings.load(storage=storage, environ=keys))
    plugin, interceptors = AgentPlugin(agents), [Recorder()] if exact else []
    replayer = Replayer(workflows=[], plugins=[plugin], data_converter=converter, interceptors=interceptors)

    async def each() -> AsyncIterator[WorkflowHistory]:
        for history in histories:
            yield history

    async with replayer.workflow_replay_iterator(each()) as results:
        async for result in results:
            problem = None if result.replay_failure is None else _explain(result.history, result.replay_failure)
            if problem is None and exact:
                problem = await first_difference(result.history, converter)
            if problem is not None:
                started = result.history.events[0].workflow_execution_started_event_attributes
                execution = started.original_execution_run_id
                return f"run {result.history.workflow_id!r} (execution {execution}) does not replay: {problem}"
    return None


def _explain(history: WorkflowHistory, error: Exception) -> str:
    """Temporal's message, and what the history holds at the event it names."""
    found = re.search(r"HistoryEvent\(id: (\d+)", str(error))
    event = next((event for event in history.events if found is not None and event.event_id == int(found[1])), None)
    if event is None:
        said = re.search(r'message: "((?:[^"\\]|\\.)*)"', str(error))
        return said[1] if said is not None else str(error)
    kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").replace("_", " ").lower()
    scheduled = event.activity_task_scheduled_event_attributes
    detail = f" {scheduled.activity_id!r} ({scheduled.activity_type.name})" if scheduled.activity_id else ""
    if event.user_metadata.summary.data:
        detail += f" {event.user_metadata.summary.data.decode(errors='replace')}"
    return (
        f"the history has event {event.event_id}, {kind}{detail}, where the code now does something else. "
        f"A hook is not deterministic, or the code was changed. ({error})"
    )


def load_agent(place: Place) -> Agent:
    """Import the module by its name, or where that finds nothing (pytest's importlib mode), by its file.

    Raises:
        TypeError: The module holds something else there.
    """
    remember_file(place.module, place.file)
    found = getattr(importlib.import_module(place.module), place.attribute, None)
    if not isinstance(found, Agent):
        raise TypeError(f"{place.module}.{place.attribute} is not an Agent in another process, but {found!r:.80}")
    return found


async def _run(job: ReplayJob) -> ReplayAnswer:
    sys.path[:] = job.path
    histories = [WorkflowHistory.from_json(run_id, text) for run_id, text in job.histories]
    try:
        agents = [load_agent(place) for place in job.agents]
    except Exception as error:
        names = ", ".join(f"{place.module}.{place.attribute}" for place in job.agents)
        return ReplayAnswer(failure=f"the agents ({names}) could not be imported in another process: {error!r}")
    return ReplayAnswer(failure=await check_histories(agents, histories, job.storage, job.exact, job.encryption))


def main() -> None:
    """Answer jobs until standard input ends."""
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a module prints when it is imported is no answer
    for line in sys.stdin.buffer:
        answer = asyncio.run(_run(ReplayJob.model_validate_json(line)))
        answers.write(answer.model_dump_json().encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
