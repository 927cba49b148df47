"""Encryption on a real server: rotation, a worker without the key, other runs' ciphertexts, plain signals, storage."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from outlast import Agent, AgentOptions, AgentPlugin, AgentRunFailed, Client, tool
from outlast.activities.archive import archive
from outlast.devserver import _binary as temporal_program
from outlast.encryption import KEY_ID, is_encrypted
from outlast.errors import OutlastError
from outlast.keyring import KEYS, Keyring, new_key
from outlast.middleware import human_in_the_loop
from outlast.model import Completion, ModelRequest
from outlast.run import Run
from outlast.settings import Settings, connect
from outlast.storage import tombstone
from outlast.testing import ScriptedModel, local_env
from outlast.testing.env import LocalEnv
from outlast.testing.scripted import call, calls, text

A, B = (Keyring.from_text(new_key(id), KEYS) for id in "ab")
BOTH = Keyring(B.keys + A.keys)


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


@tool
def read(page: int) -> str:
    """A page, of four kilobytes."""
    return f"page {page} " + "word " * 800


def turn(request: ModelRequest) -> Completion:
    return (
        text("done") if any(message.role == "tool" for message in request.messages) else call("publish", title="first")
    )


def editor() -> Agent:
    model = ScriptedModel([turn] * 20)
    return Agent(
        AgentOptions(name="editor", model=model, tools=[publish], middleware=[human_in_the_loop({"publish": True})])
    )


@asynccontextmanager
async def served(env: LocalEnv, ring: Keyring | None) -> AsyncIterator[Client]:
    """A worker with these keys on the environment's task queue, and a client with the same."""
    keys = {} if ring is None else {KEYS: ring.to_text()}
    temporal = await connect(Settings.load(address=env.address, storage=env.storage, environ=keys))
    async with Worker(temporal, task_queue=env.task_queue, plugins=[AgentPlugin(env.agents)]):
        yield Client(temporal, task_queue=env.task_queue)


async def suspended(run: Run) -> None:
    async with asyncio.timeout(20):
        while (await run.info()).status != "suspended":
            await asyncio.sleep(0.05)


def key_ids(history: WorkflowHistory, since: int = 0) -> set[str]:
    """The keys of all ciphertexts in the events after one."""
    data = b"".join(event.SerializeToString() for event in history.events[since:])
    return {id for id in "ab" if KEY_ID.encode() + b"\x12\x01" + id.encode() in data}


async def history_of(run: Run) -> WorkflowHistory:
    return await run.temporal.get_workflow_handle(run.id).fetch_history()


async def test_a_run_under_an_old_key_goes_on_under_a_new_one() -> None:
    async with local_env([editor()], encryption=A) as env:
        run = await env.client.start("editor", "go", id="rotation")
        await suspended(run)
        await env.stop_worker()
        before = await history_of(run)
        assert key_ids(before) == {"a"}
        async with served(env, BOTH) as client:
            again = client.get("rotation")
            await again.decide("publish", "approve", by="alice")
            assert (await again.result()).output == "done"
            after = await history_of(again)
        assert key_ids(after, since=len(before.events) + 1) == {"b"}
        env.encryption = BOTH


async def test_a_worker_without_the_key_changes_nothing_in_a_run_that_has_begun() -> None:
    await asyncio.gather(meet_worker_with(B), meet_worker_with(None))  # each waits ten seconds for a task's time-out


async def meet_worker_with(ring: Keyring | None) -> None:
    async with local_env([editor()], encryption=A) as env:
        run = await env.client.start("editor", "go")
        await suspended(run)
        await env.stop_worker()
        before = len((await history_of(run)).events)
        async with served(env, ring):
            handle = env.temporal.get_workflow_handle(run.id)
            message = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b'{"text": "go on"}'))
            await handle.signal("send", message)
            async with asyncio.timeout(20):
                while (await handle.describe()).raw_description.pending_workflow_task.attempt < 2:
                    await asyncio.sleep(0.05)
        added = [EventType.Name(event.event_type) for event in (await history_of(run)).events[before:]]
        assert set(added) <= {
            "EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED",
            "EVENT_TYPE_WORKFLOW_TASK_SCHEDULED",
            "EVENT_TYPE_WORKFLOW_TASK_STARTED",
            "EVENT_TYPE_WORKFLOW_TASK_FAILED",
            "EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT",
        }
        await env.start_worker()
        await run.decide("publish", "approve", by="alice")
        assert (await run.result()).output == "done"


async def test_a_new_run_that_no_worker_can_read_fails_with_the_reason() -> None:
    async with local_env([editor()], encryption=A) as env:
        await env.stop_worker()
        async with served(env, Keyring(B.keys)):
            run = await env.client.start("editor", "go")
            with pytest.raises(AgentRunFailed) as failed:
                await asyncio.wait_for(run.result(), 60)
        assert failed.value.code == "INVALID_INPUT"
        assert "encrypted with the key 'b', which this process does not have" in str(failed.value)
        keys = await connect(Settings.load(address=env.address, environ={KEYS: BOTH.to_text()}))
        with pytest.raises(AgentRunFailed, match="encrypted with the key 'a', which this process does not have"):
            await Client(keys).get(run.id).result()
        env.encryption = BOTH


async def test_a_client_without_the_key_is_told_so_and_still_lists() -> None:
    async with local_env([editor()], encryption=A) as env:
        run = await env.client.start("editor", "go")
        await suspended(run)
        keyless = Client(await connect(Settings.load(address=env.address, environ={})), task_queue=env.task_queue)
        info = await keyless.get(run.id).info()
        assert "encrypted with the key 'a'" in info.error
        for asking in (keyless.get(run.id).pending(), keyless.get(run.id).messages()):
            with pytest.raises(OutlastError, match="cannot be read here: a payload is encrypted with the key 'a'"):
                await asking
        with pytest.raises(OutlastError, match="cannot be read here"):
            await anext(aiter(keyless.get(run.id).events()))
        await run.decide("publish", "approve")
        await run.result()
        with pytest.raises(OutlastError, match="cannot be read here"):
            await keyless.get(run.id).result()


async def first_input(run: Run) -> Payload:
    history = await history_of(run)
    return history.events[0].workflow_execution_started_event_attributes.input.payloads[0]


async def test_a_copied_forged_or_foreign_ciphertext_neither_reaches_nor_harms_a_run() -> None:
    async with local_env([editor()], encryption=A) as env:
        runs = [await env.client.start("editor", f"go {number}") for number in (1, 2)]
        for run in runs:
            await suspended(run)
        copied = await first_input(runs[1])
        assert is_encrypted(copied)
        unknown = Payload(metadata={**copied.metadata, KEY_ID: b"zzz"}, data=copied.data)
        bad = [copied, unknown, Payload(metadata=dict(copied.metadata), data=b"\x01" * 90)]
        bad.append(Payload(metadata={"encoding": b"binary/encrypted"}, data=b""))
        plain = await connect(Settings.load(address=env.address, environ={}), data_converter=DataConverter.default)
        for payload in bad:
            for name in ("decide", "send", "resume", "abort", "nonsense"):
                await plain.get_workflow_handle(runs[0].id).signal(name, RawValue(payload))
        await runs[0].decide("publish", "approve", by="alice")
        result = await runs[0].result()
        assert result.output == "done"
        assert "go 2" not in str(result.messages)


async def test_temporals_own_command_line_decides_in_plain_text() -> None:
    async with local_env([editor()], encryption=A) as env:
        run = await env.client.start("editor", "go")
        await suspended(run)
        value = '{"interrupt": "publish", "decision": "approve", "by": "alice"}'
        command = [temporal_program(), "workflow", "signal", "--address", env.address, "--workflow-id", run.id]
        await asyncio.to_thread(
            subprocess.run, [*command, "--name", "decide", "--input", value], check=True, capture_output=True
        )
        assert (await run.result()).audit[0].decision.by == "alice"


async def test_what_is_stored_is_ciphertext_and_not_stored_again_for_every_model_call(tmp_path: Path) -> None:
    sizes = {}
    for name, ring in (("plain", None), ("sealed", A)):
        model = ScriptedModel([*(call("read", page=page) for page in range(25)), text("done")])
        agent = Agent(AgentOptions(name="reader", model=model, tools=[read]))
        async with local_env([agent], storage=tmp_path / name, encryption=ring) as env:
            await (await env.client.start("reader", "go")).result()
        files = [path for path in (tmp_path / name / "objects").rglob("*") if path.is_file()]
        sizes[name] = (len(files), sum(path.stat().st_size for path in files))
        assert any(b"word word" in path.read_bytes() for path in files) == (ring is None)
    assert sizes["sealed"][0] <= sizes["plain"][0] + 5
    assert sizes["sealed"][1] <= sizes["plain"][1] * 1.1


def payloads_in(message: Any) -> Iterator[Payload]:
    """Every payload in a protobuf message, search attributes apart."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None or field.name in ("search_attributes", "header"):
            continue
        entry = field.message_type.GetOptions().map_entry
        values = value.values() if entry else value if field.is_repeated else [value]
        for item in values:
            if hasattr(item, "ListFields"):
                yield from payloads_in(item)


async def test_every_payload_of_a_history_and_memo_is_a_ciphertext_bound_to_its_run(tmp_path: Path) -> None:
    async with local_env([editor()], encryption=A, continue_as_new_events=10) as env:
        run = await env.client.start("editor", "go", invocation_state={"tenant": "acme"})
        await suspended(run)
        await run.send("wait")
        described = await env.temporal.get_workflow_handle(run.id).describe()
        found = list(payloads_in(described.raw_description.workflow_execution_info.memo))
        found += payloads_in(described.raw_description.execution_config)
        await run.decide("publish", "approve", by="alice")
        await run.result()
        found += [item for history in await env.histories() for event in history.events for item in payloads_in(event)]
    assert len(found) > 15
    assert [item for item in found if not is_encrypted(item)] == []
    assert [item for item in found if item.data[1:17] == bytes(16)] == []


async def test_a_worker_archives_nothing_that_it_cannot_read() -> None:
    for unreadable in (tombstone("the key is missing"), tombstone("the object is gone")):
        with pytest.raises(ApplicationError, match="cannot be read: the "):
            await archive(RawValue(unreadable))


lent: list[str] = []


@tool(task_queue="vault")
def lend(what: str) -> str:
    """Lend."""
    lent.append(what)
    return f"lent {what}"


@tool(task_queue="vault")
def lose(what: str) -> str:
    """Fail."""
    raise LookupError(f"no {what}")


async def test_an_answer_under_a_key_that_the_worker_lacks_waits_for_a_worker_that_has_it() -> None:
    lent.clear()
    model = ScriptedModel([calls(call("lend", what="book"), call("lose", what="pen")), text("done")])
    agent = Agent(AgentOptions(name="lender", model=model, tools=[lend, lose]))
    async with local_env([agent], encryption=A) as env:
        ahead = await connect(Settings.load(address=env.address, environ={KEYS: BOTH.to_text()}))
        async with Worker(ahead, task_queue="vault", plugins=[AgentPlugin([agent])]):
            run = await env.client.start("lender", "go")
            handle = env.temporal.get_workflow_handle(run.id)
            async with asyncio.timeout(20):
                while (await handle.describe()).raw_description.pending_workflow_task.attempt < 2:
                    await asyncio.sleep(0.05)
            await env.stop_worker()
            async with served(env, BOTH) as client:
                result = await client.get(run.id).result()
        env.encryption = BOTH
    assert result.output == "done"
    assert lent == ["book"]
    assert "lent book" in str(result.messages)
    assert "lose failed: LookupError: no pen" in str(result.messages)
