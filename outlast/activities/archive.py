"""The activity ``archive``: a part of a transcript becomes one stored payload that the run only knows by reference."""

from __future__ import annotations

import base64

from pydantic_core import from_json
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import DataConverter, WorkflowSerializationContext

from outlast.activities.failures import refuse_unreadable
from outlast.messages import Message, load_messages

ARCHIVE = "archive"


@activity.defn(name=ARCHIVE)
async def archive(messages: RawValue) -> str:
    """Store an array of messages as the run's own; the payload that refers to them, in base64."""
    if not messages.payload.data.startswith(b"["):  # else what this worker cannot read would replace it for good
        refuse_unreadable(from_json(messages.payload.data))
    info = activity.info()
    assert info.workflow_id is not None
    converter = _converter(activity.client(), info.workflow_id)
    [payload] = await converter.encode([messages])
    return base64.b64encode(payload.SerializeToString()).decode()


async def read_archived(client: Client, run_id: str, payload: str) -> tuple[Message, ...]:
    """The messages of a part that :func:`archive` stored for this run.

    Raises:
        ValueError: They cannot be had here: a tombstone stands in their place, or this process has no key for them.
    """
    stored = Payload.FromString(base64.b64decode(payload))
    [raw] = await _converter(client, run_id).decode([stored], [RawValue])
    data: bytes = raw.payload.data
    return load_messages(data)


def _converter(client: Client, run_id: str) -> DataConverter:
    return client.data_converter.with_context(WorkflowSerializationContext(client.namespace, run_id))
