"""T3: no stranger's message can stick or fail a run, and the next good decision works."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import EventType, UpdateWorkflowExecutionLifecycleStage
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    SignalWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError

from outlast import Agent, AgentOptions, AgentRunFailed, AgentRunPaused, tool
from outlast.middleware import human_in_the_loop
from outlast.model import ModelRequest
from outlast.run import Run
from outlast.testing import LocalEnv, ScriptedModel, call, local_env
from outlast.testing.scripted import Reply

pytestmark = pytest.mark.usefixtures("replay_every_run")

COMPLETED = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_COMPLETED
GOOD = {"interrupt": "publish", "decision": "approve"}


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def turn(request: ModelRequest) -> Reply:
    return "done" if any(message.role == "tool" for message in request.messages) else call("publish", title="x")


def gated(name: str = "a") -> Agent:
    model = ScriptedModel([turn] * 80)
    gate = human_in_the_loop({"publish": {"allowed_decisions": ["approve", "reject"]}})
    return Agent(AgentOptions(name=name, model=model, tools=[publish], middleware=[gate]))


async def waiting(run: Run) -> Run:
    while not await run.pending():
        await asyncio.sleep(0.02)
    return run


def json_payload(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


REFERENCE = b"temporal.api.sdk.v1.ExternalStorageReference"
FORGED = [
    Payload(metadata={"encoding": b"json/protobuf", "messageType": REFERENCE}, data=data)
    for data in (
        b"",
        b"{",
        b"{}",
        b'{"driverName": "nobody"}',
        b'{"driverName": "outlast.directory", "claimData": {"key": "../x"}}',
    )
] + [Payload(metadata={"encoding": b"json/external-storage-reference"}, data=b"{}")]
"""What looks as if the value were in external storage; Temporal reads it before any handler runs."""


def junk(dice: random.Random) -> Payloads:
    """One malformed input: wrong JSON, wrong types, wrong encodings, wrong arity, huge, deep, or odd."""
    values: list[Any] = [None, 3, True, ["approve"], [], [GOOD], {}, {"interrupt": 7}, {"interrupt": "publish"}]
    decisions: list[Any] = ["aprove", 3, None, [], {}, {"edit": 1}, {"edit": {"title": "y"}}]
    values += [{**GOOD, "decision": decision} for decision in decisions]
    values += [{**GOOD, "extra": 1}, {**GOOD, "interrupt": ""}, {**GOOD, "interrupt": "publish:{}"}, {**GOOD, "by": 3}]
    values += [{**GOOD, "interrupt": "x" * 50_000}, {"text": ""}, {"message": {"role": "assistant"}}, {"text": 3}]
    values += [{**GOOD, field: "\ud800"} for field in ("by", "comment", "id", "reason", "interrupt")]
    values += [{**GOOD, "decision": {"reject": "\udfff"}}, {**GOOD, "id": "\ud800"}, {"text": "hi", "id": "\ud800"}]
    values += [{"text": "\ud800"}, {"reason": "\ud800"}, {**GOOD, "by": float("nan")}, {**GOOD, "x\ud800": 1}]
    values += [{**GOOD, "decision": {"edit": {"title": "\ud800"}}}, {**GOOD, "decision": {"edit": {"\udc00": 1}}}]
    payloads = [json_payload(value) for value in values]
    texts = (
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 5000,
        b"NaN",
        b'{"a": 1, "a": 2}',
        b'{"interrupt": "\\u0000"}',
        b'{"interrupt": "publish", "decision": {"edit": {"title": ' + b"9" * 5000 + b"}}}",
        b'{"interrupt": "publish", "decision": {"edit": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}}",
    )
    payloads += [Payload(metadata={"encoding": b"json/plain"}, data=text) for text in texts]
    payloads += [
        Payload(metadata={"encoding": encoding}, data=b"x")
        for encoding in (
            b"",
            b"binary/plain",
            b"binary/null",
            b"json/protobuf",
            b"binary/encrypted",
            b"\xff",
            b"x" * 500,
        )
    ]
    payloads += [Payload(), Payload(metadata={"odd": b"\0\xff"}, data=b"{}"), *FORGED]
    return Payloads(payloads=dice.choices(payloads, k=dice.choice([0, 1, 1, 1, 1, 2, 5])))


def junk_starts() -> list[Payload]:
    texts = (b"", b"{", b"\xff\xfe", b"[" * 5000, b'{"agent": "a", "input": ' + b"9" * 5000 + b"}")
    found = [Payload(metadata={"encoding": b"json/plain"}, data=text) for text in texts]
    encodings = (b"", b"binary/plain", b"binary/null", b"json/protobuf", b"binary/protobuf", b"odd", b"\xff")
    return [*found, *(Payload(metadata={"encoding": item}, data=b"x") for item in encodings), Payload(), *FORGED]


NAMES = [
    "decide",
    "send",
    "resume",
    "report",
    "child_report",
    "",
    "dedide",
    "x" * 900,
    "a\nb",
    "__stack_trace",
    "\u202e",
]


async def poison(env: LocalEnv, run_id: str, dice: random.Random) -> str:
    """Send one malformed signal or update, raw; says what became of it."""
    execution, name, junk_input = WorkflowExecution(workflow_id=run_id), dice.choice(NAMES), junk(dice)
    service, namespace = env.temporal.workflow_service, env.temporal.namespace
    try:
        if dice.random() < 0.6:
            await service.signal_workflow_execution(
                SignalWorkflowExecutionRequest(
                    namespace=namespace, workflow_execution=execution, signal_name=name, input=junk_input
                )
            )
            return "signal"
        answer = await service.update_workflow_execution(
            UpdateWorkflowExecutionRequest(
                namespace=namespace,
                workflow_execution=execution,
                wait_policy=WaitPolicy(lifecycle_stage=COMPLETED),
                request=Request(meta=Meta(update_id=str(dice.random())), input=Input(name=name, args=junk_input)),
            )
        )
        return "refused" if answer.outcome.HasField("failure") else "accepted"
    except RPCError as error:
        return error.status.name


async def test_a_thousand_malformed_signals_and_updates_leave_the_run_waiting_and_the_next_decision_works() -> None:
    seed = 20261201
    dice = random.Random(seed)
    async with local_env([gated()]) as env:
        runs = [await env.client.start("a", "go") for _ in range(10)]
        await asyncio.gather(*map(waiting, runs))
        counts: dict[str, int] = {}
        for _ in range(50):
            sent = [poison(env, run.id, random.Random(dice.random())) for run in runs for _ in range(2)]
            for what in await asyncio.gather(*sent):
                counts[what] = counts.get(what, 0) + 1
        assert sum(counts.values()) == 1000
        assert counts["signal"] > 400
        assert counts["refused"] > 200, counts
        assert counts.get("accepted", 0) == 0, counts
        for run in runs:
            history = await env.temporal.get_workflow_handle(run.id).fetch_history()
            failed = [e for e in history.events if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
            assert failed == []
            assert (await run.info()).status == "suspended"
            await run.decide("publish", "approve")
        for run in runs:
            result = await run.result()
            assert result.messages[2].tool_results[0].text == "published x"
            assert len(result.messages) == 4


async def test_what_was_refused_is_noted_for_the_watchers() -> None:
    async with local_env([gated()]) as env:
        run = await waiting(await env.client.start("a", "go"))
        handle = env.temporal.get_workflow_handle(run.id)
        await handle.signal("decide", {"interrupt": "publish", "decision": {"edit": {"title": "y"}}})
        await handle.signal("decide", {**GOOD, "by": "alice"})
        await run.result()
        refused = [event async for event in run.events() if getattr(event, "kind", "") == "input.refused"]
        assert "may not be decided with 'edit'; allowed: approve, reject" in str(refused[0].data)  # type: ignore[union-attr]


async def test_a_command_with_an_id_is_obeyed_once() -> None:
    async with local_env([gated()]) as env:
        run = await waiting(await env.client.start("a", "go"))
        handle = env.temporal.get_workflow_handle(run.id)
        for _ in range(3):
            await handle.signal("send", {"text": "hello", "id": "one"})
        await run.decide("publish", "approve", id="two")
        result = await run.result()
        assert [message.text for message in result.messages].count("hello") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "must be an object like"),
        (["hi"], "must be an object like"),
        ([{"agent": "a"}], "neither 'input' nor 'messages'"),
        ([{"input": "hi"}], "agent"),
        ([{"agent": "a", "input": 3}], "input"),
        ([{"agent": "a", "messages": [{"role": "king"}]}], "messages.0.role"),
        ([{"state": {"agent": 3}, "layout": []}], "state.agent"),
        ([{"state": {"agent": "a"}, "layout": [[5, 0]]}], "layout does not fit"),
        ([{"state": {"agent": "a"}, "layout": [[2, 0], [-2, 0]]}], "layout does not fit"),
        ([{"state": {"agent": "a"}, "layout": []}, "text"], "messages|valid"),
        ([{"agent": "a" * 2000, "input": "hi"}], "agent"),
        ([{"agent": "a", "input": "hi", "parent": {"run_id": "", "call_id": "x"}}], "parent.run_id"),
        ([{"agent": "a", "input": "hi", "invocation_state": {"x": float("nan")}}], "not a JSON value"),
        ([{"agent": "a", "input": "hi", "invocation_state": {"x": "\ud800"}}], "hex escape"),
        ([{"agent": "a", "input": "\ud800"}], "hex escape"),
    ],
)
async def test_a_malformed_start_fails_at_once_and_says_what_is_wrong(arguments: list[Any], message: str) -> None:
    async with local_env([gated()]) as env:
        handle = await env.temporal.start_workflow(
            "AgentRun", args=arguments, id=f"bad-{random.random()}", task_queue=env.task_queue
        )
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert re.search(message, str(caught.value.cause)), caught.value.cause
        with pytest.raises(AgentRunFailed, match="INVALID_INPUT"):
            await env.client.get(handle.id).result()


@pytest.mark.parametrize("limits", [{"events": -5}, {"size": 0}, {"seconds": "nan"}, {"seconds": -1.0}])
async def test_odd_history_limits_slow_a_run_down_at_most(limits: dict[str, Any]) -> None:
    async with local_env([gated()]) as env:
        start = {"agent": "a", "input": "go", "history_limits": limits}
        handle = await env.temporal.start_workflow(
            "AgentRun", start, id=f"odd-{random.random()}", task_queue=env.task_queue
        )
        run = await waiting(env.client.get(handle.id))
        await run.decide("publish", "approve")
        assert (await run.result()).output == "done"


async def test_a_start_too_large_to_hand_over_waits_for_its_agent_where_it_is() -> None:
    """Without storage 1.8 MB can be started and not continued as new."""
    async with local_env([gated()]) as env:
        run = await env.client.start("nobody", "x" * 1_895_000)
        with pytest.raises(AgentRunPaused, match="no agent is named 'nobody'"):
            await run.result()
        await run.resume()
        with pytest.raises(AgentRunPaused, match="no agent is named 'nobody'"):
            await run.result()
        await run.abort("enough")
        with pytest.raises(AgentRunFailed, match="ABORTED: enough"):
            await run.result()


@pytest.mark.parametrize("payload", junk_starts(), ids=lambda payload: repr(payload.data[:20]))
async def test_bytes_that_no_one_can_read_fail_a_start_at_once(payload: Payload) -> None:
    async with local_env([gated()]) as env:
        run_id = f"junk-{random.random()}"
        await env.temporal.workflow_service.start_workflow_execution(
            StartWorkflowExecutionRequest(
                namespace=env.temporal.namespace,
                workflow_id=run_id,
                workflow_type=WorkflowType(name="AgentRun"),
                task_queue=TaskQueue(name=env.task_queue),
                request_id=run_id,
                input=Payloads(payloads=[payload]),
            )
        )
        with pytest.raises(AgentRunFailed, match="INVALID_INPUT"):
            await asyncio.wait_for(env.client.get(run_id).result(), 5)
