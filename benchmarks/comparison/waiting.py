"""Waiting for a run: until it is suspended, until it ends or breaks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError, WorkflowHistory

from benchmarks.comparison.arena import PeerWorker
from benchmarks.processes import Handle
from outlast.client import Client

SUSPENDED_EVENTS = 20
"""A run that has called the model, a tool and the model again has at least so many events."""

STUCK_ATTEMPTS = 4
"""A workflow task that has failed so many times in a row will not succeed."""


class Broken(Exception):
    """A run that will not go on; the text says how it ended."""


def is_idle(described: DescribeWorkflowExecutionResponse) -> bool:
    """Nothing is left to do before somebody answers."""
    return (
        described.workflow_execution_info.history_length >= SUSPENDED_EVENTS
        and not described.pending_activities
        and not described.HasField("pending_workflow_task")
    )


async def suspended(worker: PeerWorker, handle: Handle) -> None:
    """Until the run waits for an answer.

    Raises:
        Broken: It ended instead, or its workflow task fails.
    """
    while True:
        described = await worker.describe(handle)
        if WorkflowExecutionStatus(described.workflow_execution_info.status) != WorkflowExecutionStatus.RUNNING:
            raise Broken(f"the run ended before it was approved: {await how_it_ended(handle)}")
        if described.pending_workflow_task.attempt >= STUCK_ATTEMPTS:
            raise Broken(await why_stuck(worker, handle))
        if is_idle(described):
            return
        await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Outcome:
    """How a run ended; ``error`` is empty if it did all of its work."""

    seconds: float
    error: str


async def outcome(worker: PeerWorker, handle: Handle, patience: float) -> Outcome:
    """Watch a run until it ends, is stuck, parks, or the time is up."""
    began = time.perf_counter()
    while (seconds := time.perf_counter() - began) < patience:
        described = await worker.describe(handle)
        status = WorkflowExecutionStatus(described.workflow_execution_info.status)
        if status == WorkflowExecutionStatus.COMPLETED:
            return Outcome(seconds, "")
        if status not in (WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.CONTINUED_AS_NEW):
            return Outcome(seconds, f"{status.name.lower()}: {await how_it_ended(handle)}")
        if described.pending_workflow_task.attempt >= STUCK_ATTEMPTS:
            return Outcome(seconds, await why_stuck(worker, handle))
        if failing := [item for item in described.pending_activities if item.attempt >= STUCK_ATTEMPTS]:
            return Outcome(seconds, f"stuck, its activity fails: {short(failing[0].last_failure.message)}")
        if worker.process.poll() is not None:
            return Outcome(seconds, f"its worker died: {worker.last_words()}")
        if worker.candidate.is_ours and (info := await Client(worker.client).get(handle.id).info()).status == "paused":
            return Outcome(seconds, f"parked: {short(info.error)}")
        await asyncio.sleep(0.2)
    return Outcome(patience, f"still running after {patience:.0f} s")


async def how_it_ended(handle: Handle) -> str:
    """The failure's cause, in words."""
    try:
        await handle.result()
    except WorkflowFailureError as error:
        cause: BaseException | None = error.cause
        texts = []
        while cause is not None:
            texts.append(str(cause))
            cause = cause.__cause__
        return short(": ".join(dict.fromkeys(texts)))
    return "completed"


async def why_stuck(worker: PeerWorker, handle: Handle) -> str:
    """What the last workflow task failed with; where the history does not say it, the worker's log does."""
    history: WorkflowHistory = await handle.fetch_history()
    failed = [event for event in history.events if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
    if not failed:
        return f"stuck, its workflow task does not come back; the worker says: {short(worker.last_words())}"
    message = failed[-1].workflow_task_failed_event_attributes.failure.message
    return f"stuck, its workflow task fails for ever: {short(message)}"


def short(text: str) -> str:
    """One line of at most 160 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:157]}..."
