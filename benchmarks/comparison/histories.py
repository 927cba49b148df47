"""What a run left in the server's history, step by step, whoever made it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.client import WorkflowHistory

from benchmarks.comparison.arena import PeerWorker
from benchmarks.processes import Handle
from outlast.testing.histories import fetch_histories

BOUNDARY_STEPS = 2
"""Left out at both ends: the first step holds the start, the last ones the end."""


@dataclass(frozen=True)
class Footprint:
    """Bytes and events of each step, over all executions of a run."""

    bytes: Sequence[int]
    events: Sequence[int]
    executions: int
    largest: int
    total: int

    def early(self, values: Sequence[int], count: int = 5) -> float:
        """Mean of the first steps."""
        return _mean(values[BOUNDARY_STEPS : BOUNDARY_STEPS + count])

    def late(self, values: Sequence[int], count: int = 5) -> float:
        """Mean of the last steps."""
        return _mean(values[-BOUNDARY_STEPS - count : -BOUNDARY_STEPS])


def _mean(values: Sequence[int]) -> float:
    return statistics.fmean(values) if values else float("nan")


async def histories_of(worker: PeerWorker, handle: Handle) -> list[WorkflowHistory]:
    """All executions of a run."""
    return await fetch_histories(worker.client, [(handle.id, None)])


def footprint(histories: Sequence[WorkflowHistory]) -> Footprint:
    """A step is what lies between two model calls; the activity that a run schedules first is its model call."""
    sizes: list[int] = []
    events: list[int] = []
    totals = []
    for history in histories:
        model: str | None = None
        for event in history.events:
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            model = model or name or None
            if name and name == model:
                sizes.append(0)
                events.append(0)
            if sizes:
                sizes[-1] += event.ByteSize()
                events[-1] += 1
        totals.append(sum(event.ByteSize() for event in history.events))
    return Footprint(sizes, events, len(histories), max(totals), sum(totals))
