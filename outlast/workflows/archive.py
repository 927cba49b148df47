"""Moving what hooks have declared old into storage, just before a run continues as new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError

from outlast.activities.archive import ARCHIVE
from outlast.activities.models import json_value
from outlast.archive import Archive, ArchivedPart, archive_before
from outlast.messages import Message, dump_messages
from outlast.state import RunState
from outlast.workflows.transcript import MAX_CHUNK_BYTES

WORTHWHILE = 50_000
"""Bytes of JSON below which an activity costs more than carrying the messages on."""


async def archive_old(state: RunState) -> bool:
    """Take what is old out of the transcript in memory; True if the transcript has changed.

    Where storage fails, everything stays as it is: the next handover tries again.
    """
    old, stay = archive_before(state.transcript, state.archive.kept, state.archive_before)
    pieces = list(_pieces(old))
    if sum(len(data) for _, data in pieces) < WORTHWHILE:
        return False
    parts: list[ArchivedPart] = []
    for number, (count, data) in enumerate(pieces, 1):
        try:
            payload = await _store(f"s{state.step:04d}.archive.{number}", json_value(data))
        except ActivityError:
            return False
        parts.append(ArchivedPart(messages=count, payload=payload))
    del state.transcript[: state.archive.kept + len(old)]
    state.transcript[:0] = stay
    state.archive = Archive(parts=(*state.archive.parts, *parts), kept=len(stay))
    return True


async def _store(command_id: str, messages: RawValue) -> str:
    payload: str = await workflow.execute_activity(
        ARCHIVE,
        messages,
        activity_id=command_id,
        result_type=str,
        start_to_close_timeout=timedelta(seconds=60),
        schedule_to_close_timeout=timedelta(minutes=10),
        retry_policy=RetryPolicy(maximum_attempts=5, maximum_interval=timedelta(seconds=30)),
    )
    return payload


def _pieces(messages: Sequence[Message]) -> Iterator[tuple[int, bytes]]:
    """Arrays of messages as JSON text of at most a chunk's size, or of one message; with how many each holds."""
    taken: list[bytes] = []
    size = 0
    for data in (dump_messages([message])[1:-1] for message in messages):
        if taken and size + len(data) > MAX_CHUNK_BYTES:
            yield len(taken), b"[" + b",".join(taken) + b"]"
            taken, size = [], 0
        taken.append(data)
        size += len(data)
    if taken:
        yield len(taken), b"[" + b",".join(taken) + b"]"
