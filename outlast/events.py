"""What a watcher of a run is told, and what a parked run says of itself."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from pydantic import Field
from pydantic_core import to_json

from outlast.messages import Json, Value

EventKind: TypeAlias = Literal[
    "run.started",
    "step.started",
    "model.completed",
    "text",
    "tool.started",
    "tool.finished",
    "interrupt.requested",
    "interrupt.reminded",
    "interrupt.decided",
    "message.received",
    "input.refused",
    "run.paused",
    "run.resumed",
    "run.finished",
    "custom",
]

KEPT_EVENTS = 500
"""How many of the newest events a run keeps; an older cursor is told what it missed."""


class Event(Value):
    """One thing that happened in a run.

    Attributes:
        seq: 1-based, without gaps over the run's whole life, continue-as-new included. A watcher's cursor.
        at: Workflow time, UTC.
        data: JSON, per kind: the tool's name and call id, the text, the error, ...
    """

    seq: int
    at: datetime
    kind: EventKind
    step: int = 0
    data: dict[str, Json] = Field(default_factory=dict)


class PauseInfo(Value):
    """Why a run is parked.

    Attributes:
        where: The hook and its middleware, or the call: ``before_tool of 'audit'``, ``model call of step 7``.
        error: ``ClassName: message``.
        code: A short code for programs: ``HOOK_ERROR``, ``MODEL_ERROR``, ``UNKNOWN_AGENT``, ...
        since: Workflow time, UTC.
    """

    where: str
    error: str
    code: str = "HOOK_ERROR"
    traceback: str = ""
    since: datetime | None = None


class EventLog:
    """The newest events of a run, in memory; the counter goes on for ever."""

    def __init__(self, seq: int = 0, tail: tuple[Event, ...] = ()) -> None:
        self.seq = seq
        self._events = list(tail)

    def add(self, kind: EventKind, at: datetime, step: int, data: dict[str, Json]) -> Event:
        """Append one event."""
        self.seq += 1
        event = Event(seq=self.seq, at=at, kind=kind, step=step, data=data)
        self._events.append(event)
        if len(self._events) > 2 * KEPT_EVENTS:
            del self._events[:-KEPT_EVENTS]
        return event

    def after(self, cursor: int, limit: int = 200, max_bytes: int | None = None) -> list[Event]:
        """Events with a greater ``seq`` than the cursor, oldest first; the first of them even if it is too large."""
        found = [event for event in self._events if event.seq > cursor][:limit]
        return found if max_bytes is None else found[: max(1, _fitting(found, max_bytes))]

    def tail(self, count: int, max_bytes: int) -> tuple[Event, ...]:
        """The newest events, so many and so large together at most."""
        newest = self._events[: -count - 1 : -1]
        return tuple(reversed(newest[: _fitting(newest, max_bytes)]))


def _fitting(events: Sequence[Event], max_bytes: int) -> int:
    """How many of the first of these events have room."""
    sizes = itertools.accumulate(len(to_json(event.data)) for event in events)
    return sum(1 for size in sizes if size <= max_bytes)
