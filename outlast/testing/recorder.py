"""What a replay does, compared with what the history says was done, byte by byte.

Temporal compares the kinds and ids of commands alone: a hook that orders a set differently, or computes another
argument, replays without a word and goes on with another's result. Here inputs and results are compared too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.common import RawValue
from temporalio.converter import DataConverter, WorkflowSerializationContext
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.workflow import ActivityHandle, ChildWorkflowHandle, info

from outlast.storage.owner import REPLAY_NAMESPACE

RESULT, CONTINUED = "the run's result", "the state handed over (continue-as-new)"
_CONTEXT = 60
_CAUSES = "Something that changes from process to process got into it: the order of a set, hash(), id(), the time zone"

_lock = threading.Lock()
_done: dict[str, dict[str, list[bytes]]] = {}
"""Per execution's run id: what was done and with which bytes."""


class Recorder(Interceptor):
    """Notes what the workflows of a replayer do."""

    def workflow_interceptor_class(self, _input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        """Temporal asks for it once per worker."""
        return _Inbound


def _note(what: str, values: Sequence[Any]) -> None:
    payloads = [value.payload.data for value in values if isinstance(value, RawValue)]
    if len(payloads) == len(values):
        with _lock:
            _done.setdefault(info().run_id, {})[what] = payloads


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self.next.init(_Outbound(outbound))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: ANN401 - whatever a workflow gives
        result = await self.next.execute_workflow(input)
        _note(RESULT, [result])
        return result


class _Outbound(WorkflowOutboundInterceptor):
    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        _note(CONTINUED, input.args)
        self.next.continue_as_new(input)

    def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        _note(f"the input of activity {input.activity_id!r} ({input.activity})", input.args)
        return self.next.start_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> ChildWorkflowHandle[Any, Any]:
        _note(f"the input of sub-agent {input.id!r}", input.args)
        return await self.next.start_child_workflow(input)


async def first_difference(history: WorkflowHistory, converter: DataConverter) -> str | None:
    """What the replay of this history did with other bytes than are recorded, or None."""
    with _lock:
        done = _done.pop(history.events[0].workflow_execution_started_event_attributes.original_execution_run_id, {})
    for event in history.events:
        for what, payloads in _recorded(event):
            now = done.get(what)
            if now is None:
                continue
            child = event.start_child_workflow_execution_initiated_event_attributes.workflow_id  # owns its input
            context = WorkflowSerializationContext(REPLAY_NAMESPACE, child or history.workflow_id)
            decoded = await converter.with_context(context).decode(payloads, [RawValue] * len(payloads))
            before = [value.payload.data for value in decoded]
            if before != now:
                return f"{what} is different. {_CAUSES}{_difference(before, now)}"
    return None


def _recorded(event: HistoryEvent) -> Iterator[tuple[str, Sequence[Payload]]]:
    if event.HasField("activity_task_scheduled_event_attributes"):
        scheduled = event.activity_task_scheduled_event_attributes
        kind = scheduled.activity_type.name
        yield f"the input of activity {scheduled.activity_id!r} ({kind})", scheduled.input.payloads
    elif event.HasField("start_child_workflow_execution_initiated_event_attributes"):
        child = event.start_child_workflow_execution_initiated_event_attributes
        yield f"the input of sub-agent {child.workflow_id!r}", child.input.payloads
    elif event.HasField("workflow_execution_completed_event_attributes"):
        yield RESULT, event.workflow_execution_completed_event_attributes.result.payloads
    elif event.HasField("workflow_execution_continued_as_new_event_attributes"):
        yield CONTINUED, event.workflow_execution_continued_as_new_event_attributes.input.payloads


def _difference(before: Sequence[bytes], now: Sequence[bytes]) -> str:
    """The place where two lists of payloads part, as text."""
    if len(before) != len(now):
        return f": {len(before)} values were recorded, the replay gives {len(now)}"
    number, (old, new) = next((n, pair) for n, pair in enumerate(zip(before, now, strict=True)) if pair[0] != pair[1])
    shorter = min(len(old), len(new))
    place = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    start = max(0, place - _CONTEXT)
    recorded, replayed = (data[start : place + _CONTEXT].decode("utf-8", "replace") for data in (old, new))
    return f" (value {number + 1}, byte {place})\n  recorded: ...{recorded}...\n  replayed: ...{replayed}..."
