"""Rubbish, sent raw to whatever run is open: nothing of it may stick a run, end it, or be obeyed."""

from __future__ import annotations

import json
import random
import uuid
from datetime import timedelta

import temporalio.client
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.enums.v1 import UpdateWorkflowExecutionLifecycleStage
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest, UpdateWorkflowExecutionRequest
from temporalio.service import RPCError

NAMES = ("decide", "decide", "decide", "send", "child_report", "report", "dedide", "", "x" * 900, "a\nb")
_GOOD = {"interrupt": "publish", "decision": "approve"}
_DECISIONS: tuple[object, ...] = ("aprove", 3, None, [], {}, {"edit": 1})
_VALUES: tuple[object, ...] = (
    3,
    True,
    ["approve"],
    [],
    {"interrupt": 7},
    {"interrupt": "publish"},
    *({**_GOOD, "decision": decision} for decision in _DECISIONS),
    {**_GOOD, "interrupt": "nobody:asked"},
    {**_GOOD, "extra": 1},
    {**_GOOD, "by": 3},
    {**_GOOD, "id": "\ud800"},
    {**_GOOD, "comment": "\ud800"},
    {"text": ""},
    {"text": 3},
    {"message": {"role": "assistant"}},
)
_TEXTS = (b"", b"{", b"\xff\xfe", b"[" * 5000, b"NaN", b'{"interrupt": "\\u0000"}', b'{"a":' * 200 + b"1" + b"}" * 200)
_REFERENCE = b"temporal.api.sdk.v1.ExternalStorageReference"
_ODD: tuple[Payload, ...] = (
    *(Payload(metadata={"encoding": name}, data=b"x") for name in (b"", b"binary/plain", b"json/protobuf", b"\xff")),
    Payload(metadata={"encoding": b"binary/encrypted"}, data=b"x"),
    Payload(metadata={"encoding": b"json/external-storage-reference"}, data=b"{}"),
    *(
        Payload(metadata={"encoding": b"json/protobuf", "messageType": _REFERENCE}, data=data)
        for data in (b"", b"{}", b'{"driverName": "nobody"}', b'{"driverName": "outlast-dir", "claimData": {}}')
    ),
)


def rubbish(dice: random.Random) -> Payloads:
    """One malformed input: wrong JSON, types, encodings or number of values, a forged reference, or odd bytes."""
    payloads = [_json(json.dumps(value).encode()) for value in _VALUES]
    payloads += [_json(text) for text in _TEXTS]
    return Payloads(payloads=dice.choices([*payloads, *_ODD], k=dice.choice((1, 1, 1, 2, 5))))


def _json(data: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


async def send_rubbish(client: temporalio.client.Client, run_id: str, dice: random.Random) -> str:
    """Send one malformed signal or update; ``signal``, ``refused`` or ``not taken`` (by the server itself).

    Raises:
        AssertionError: An update was obeyed.
    """
    name, value = dice.choice(NAMES), rubbish(dice)
    execution = WorkflowExecution(workflow_id=run_id)
    try:
        if dice.random() < 0.7:
            signal = SignalWorkflowExecutionRequest(
                namespace=client.namespace, workflow_execution=execution, signal_name=name, input=value
            )
            await client.workflow_service.signal_workflow_execution(signal, timeout=timedelta(seconds=5))
            return "signal"
        update = UpdateWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=execution,
            wait_policy=WaitPolicy(
                lifecycle_stage=UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
            ),
            request=Request(meta=Meta(update_id=uuid.uuid4().hex), input=Input(name=name, args=value)),
        )
        answer = await client.workflow_service.update_workflow_execution(update, timeout=timedelta(seconds=5))
    except RPCError as error:
        return f"not taken ({error.status.name.lower()})"
    assert not answer.outcome.HasField("success"), f"{run_id} obeyed {name!r} with {value}"
    return "refused"
