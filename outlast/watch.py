"""Following a run from outside: its events by query, its live tokens from the model call's heartbeats.

Neither adds anything to the run's history. A run that waits is only described, not queried, so that watching a
thousand sleeping runs wakes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import temporalio.client
from pydantic import ValidationError
from pydantic_core import to_json
from temporalio.service import RPCError, RPCStatusCode

from outlast.activities.models import CALL_MODEL, DeltaText, json_value
from outlast.errors import NoAnswer, RunNotFound
from outlast.events import Event
from outlast.messages import Json, Value
from outlast.server_answers import readable

QUICK, SLOW = 0.06, 1.0


class TextDelta(Value):
    """Newly written text of a running model call. Provisional: ``reset`` means drop what this step showed before.

    Attributes:
        attempt: The activity's attempt; a new attempt starts over.
    """

    text: str
    attempt: int = 1
    reset: bool = False


WatchEvent = Event | TextDelta


class _Deltas:
    """What of a model call's text has been shown."""

    def __init__(self) -> None:
        self._key: tuple[str, int] = ("", 0)
        self._shown = 0

    def news(self, activity_id: str, started: int, delta: DeltaText) -> TextDelta | None:
        key = (activity_id, started)  # a call that is made again after a resume has the same id, and attempt 1 again
        reset = key != self._key and self._shown > 0 and self._key[0] == activity_id
        if key != self._key:
            self._key, self._shown = key, 0
        fresh = delta.length - self._shown
        if fresh <= 0:
            return None
        self._shown = delta.length
        return TextDelta(text=delta.text[-fresh:], attempt=delta.attempt, reset=reset)


async def watch(
    client: temporalio.client.Client, run_id: str, *, after: int = 0, deltas: bool = True
) -> AsyncIterator[WatchEvent]:
    """Events after the cursor, then each as it comes, until the run has ended.

    Raises:
        RunNotFound: There is no such run.
        NoAnswer: The server is gone; go on later with ``after`` set to the last ``seq`` you saw.
        OutlastError: What the run says is encrypted with a key that this process does not have.
    """
    handle = client.get_workflow_handle(run_id)
    shown = _Deltas()
    seen: tuple[str | None, int] = (None, -1)
    delay = QUICK
    while True:
        description = await _describe(handle, run_id)
        closed = description.status != temporalio.client.WorkflowExecutionStatus.RUNNING
        state = (description.run_id, description.history_length)
        answered = False
        if state != seen:
            seen, delay = state, QUICK
            more = True
            while more:
                events, newest = await _events(handle, after)
                more = bool(events) and events[-1].seq < newest
                for event in events:
                    after = event.seq
                    answered = answered or event.kind == "model.completed"
                    yield event
        # After the events that led to this text; not at all where its call was answered since we looked.
        for item in await _delta_texts(client, description) if deltas and not answered else ():
            news = shown.news(*item)
            if news is not None:
                delay = QUICK
                yield news
        if closed:
            return
        await asyncio.sleep(delay)
        delay = min(delay * 1.3, SLOW)


async def _describe(handle: Any, run_id: str) -> temporalio.client.WorkflowExecutionDescription:  # noqa: ANN401
    try:
        description: temporalio.client.WorkflowExecutionDescription = await handle.describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise RunNotFound(f"no run {run_id!r}; `outlast runs` lists them") from None
        raise NoAnswer(f"the server did not answer: {error.message}") from None
    return description


async def _events(handle: Any, after: int) -> tuple[list[Event], int]:  # noqa: ANN401 - a workflow handle
    """A page of the run's events after a cursor, and the newest event's number; none where no worker answers now."""
    try:
        answer: Json = await handle.query(
            "events", json_value(to_json({"after": after})), rpc_timeout=timedelta(seconds=20)
        )
    except (RPCError, temporalio.client.WorkflowQueryFailedError):
        return [], after
    readable(answer, handle.id)
    if not isinstance(answer, Mapping) or "events" not in answer:
        return [], after
    return [Event.model_validate(item) for item in answer["events"]], answer["seq"]


async def _delta_texts(
    client: temporalio.client.Client, description: temporalio.client.WorkflowExecutionDescription
) -> list[tuple[str, int, DeltaText]]:
    found: list[tuple[str, int, DeltaText]] = []
    for pending in description.raw_description.pending_activities:
        if pending.activity_type.name == CALL_MODEL and pending.heartbeat_details.payloads:
            [value] = await client.data_converter.decode(pending.heartbeat_details.payloads[:1])
            try:
                started = pending.last_started_time.ToNanoseconds()
                found.append((pending.activity_id, started, DeltaText.model_validate(value)))
            except ValidationError:
                continue
    return found
