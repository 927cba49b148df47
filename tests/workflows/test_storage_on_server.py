"""The directory store under a real server: large payloads pass, and no reference reads what is not its run's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleSpec,
    WorkflowHandle,
)
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from outlast.devserver import DevServer
from outlast.settings import Settings, connect, data_converter
from outlast.storage import is_tombstone

SIZE = 3_000_000
QUEUE = "storage"
WORKFLOW_TASK_FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED


@activity.defn
async def double(text: str) -> str:
    return text + text


@workflow.defn
class Echo:
    @workflow.run
    async def run(self, text: str) -> str:
        return text


@workflow.defn
class Relay:
    """Carries large values every way there is: input, activity, child, query, update, continue-as-new, result."""

    @workflow.init
    def __init__(self, text: str, generation: int = 0) -> None:
        self.told = ""

    @workflow.run
    async def run(self, text: str, generation: int = 0) -> str:
        doubled = await workflow.execute_activity(double, text, start_to_close_timeout=timedelta(seconds=30))
        echoed = await workflow.execute_child_workflow(
            Echo.run, doubled, id=f"{workflow.info().workflow_id}-{generation}"
        )
        if generation == 0:
            await workflow.wait_condition(lambda: bool(self.told) and workflow.all_handlers_finished())
            workflow.continue_as_new(args=[text, 1])
        return echoed

    @workflow.update
    async def tell(self, text: str) -> str:
        self.told = text
        return text[::-1]

    @workflow.query
    def twice(self, text: str) -> str:
        return text + text


@workflow.defn
class Listener:
    """Keeps what it is told by signal, and ends when told "end"."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @workflow.run
    async def run(self) -> list[Any]:
        await workflow.wait_condition(lambda: "end" in self.heard)
        return self.heard

    @workflow.signal
    def hear(self, value: RawValue) -> None:
        self.heard.append(workflow.payload_converter().from_payload(value.payload))


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[DevServer]:
    async with DevServer() as server:
        yield server


@pytest.fixture
def settings(server: DevServer, tmp_path: Path) -> Settings:
    return Settings.load(address=server.address, storage=f"dir://{tmp_path}/store")


@pytest.fixture
async def client(settings: Settings) -> Client:
    return await connect(settings)


def worker(client: Client, cache: int = 1000) -> AbstractAsyncContextManager[Worker]:
    return Worker(
        client,
        task_queue=QUEUE,
        workflows=[Relay, Echo, Listener],
        activities=[double],
        max_cached_workflows=cache,
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


def objects(settings: Settings) -> list[Path]:
    assert settings.storage is not None
    root = Path(settings.storage.removeprefix("dir://"))
    return [path for path in (root / "objects").rglob("*") if path.is_file()]


async def replay(client: Client, id: str, converter: DataConverter) -> None:
    """Under the namespace that a replayer has by default."""
    history = await client.get_workflow_handle(id).fetch_history()
    replayer = Replayer(
        workflows=[Relay, Echo, Listener], data_converter=converter, workflow_runner=UnsandboxedWorkflowRunner()
    )
    await replayer.replay_workflow(history)


async def first_reference(handle: WorkflowHandle[Any, Any]) -> Payload:
    """The reference that the run's input became, as anybody who may read its history can copy it."""
    event = await anext(handle.fetch_history_events())
    return event.workflow_execution_started_event_attributes.input.payloads[0]


async def deaf(handle: WorkflowHandle[Any, Any], settings: Settings, *values: Payload) -> list[Any]:
    """Signal these payloads as they are, by a client without storage, then end the run."""
    plain = await connect(settings, data_converter=DataConverter.default)
    for value in values:
        await plain.get_workflow_handle(handle.id).signal("hear", RawValue(value))
    await plain.get_workflow_handle(handle.id).signal("hear", "end")
    return list(await asyncio.wait_for(handle.result(), 30))


@pytest.mark.parametrize("cache", [1000, 0])
async def test_three_megabytes_pass_every_way_there_is(client: Client, settings: Settings, cache: int) -> None:
    id = f"relay-{cache}"
    text = "a" * SIZE
    async with worker(client, cache):
        handle = await client.start_workflow(Relay.run, args=[text, 0], id=id, task_queue=QUEUE)
        assert await handle.query(Relay.twice, text) == text + text
        assert await handle.execute_update(Relay.tell, "b" + text) == text + "b"
        assert await handle.result() == text + text
    description = await handle.describe()
    assert description.raw_description.workflow_execution_info.history_size_bytes < 10_000
    stored = len(objects(settings))
    await replay(client, id, data_converter(settings))
    assert len(objects(settings)) == stored


async def test_a_reference_of_another_run_reads_nothing_and_its_own_run_reads_it(
    client: Client, settings: Settings
) -> None:
    async with worker(client):
        secret = "the secret of alice" * 1000
        alice = await client.start_workflow(Echo.run, secret, id="alice", task_queue=QUEUE)
        copied = await first_reference(alice)
        assert copied.metadata["messageType"].endswith(b"ExternalStorageReference")
        mallory = await client.start_workflow(Listener.run, id="mallory", task_queue=QUEUE)
        assert await alice.result() == secret
        [heard, end] = await deaf(mallory, settings, copied)
    assert is_tombstone(heard)
    assert heard["reason"] == "the reference belongs to another run"
    assert end == "end"
    await replay(client, "mallory", data_converter(settings))


@pytest.mark.parametrize("with_storage", [True, False])
async def test_no_forged_reference_makes_a_run_stick(server: DevServer, tmp_path: Path, with_storage: bool) -> None:
    name = b"temporal.api.sdk.v1.ExternalStorageReference"
    kinds = [
        b"{}",
        b"garbage",
        b'{"driverName": "outlast-dir"}',
        b'{"driverName": "x"}',
        b'{"claimData": {"run": "../.."}}',
    ]
    forged = [Payload(metadata={"encoding": b"json/protobuf", "messageType": name}, data=data) for data in kinds]
    forged += [
        Payload(metadata={"encoding": b"json/external-storage-reference"}, data=b"{}"),
        Payload(metadata={"encoding": b"json/plain", "__temporal_external_storage_reference": b"true"}, data=b"1"),
    ]
    storage = f"dir://{tmp_path}" if with_storage else None
    settings = Settings.load(address=server.address, storage=storage)
    client = await connect(settings)
    async with worker(client):
        id = f"forged-{with_storage}"
        handle = await client.start_workflow(Listener.run, id=id, task_queue=QUEUE)
        heard = await deaf(handle, settings, *forged)
    assert [is_tombstone(value) for value in heard] == [True] * len(forged) + [False]
    await replay(client, id, data_converter(settings))


async def test_a_run_whose_object_is_lost_goes_on_with_a_tombstone(client: Client, settings: Settings) -> None:
    async with worker(client, cache=0):
        handle = await client.start_workflow(Listener.run, id="lost", task_queue=QUEUE)
        await handle.signal("hear", "large" * 10_000)
        for path in objects(settings):
            path.unlink()
        await handle.signal("hear", "end")
        heard = await asyncio.wait_for(handle.result(), 30)
    assert is_tombstone(heard[0])
    assert heard[1] == "end"
    await replay(client, "lost", data_converter(settings))


async def test_a_store_that_is_away_is_waited_for(client: Client, settings: Settings) -> None:
    assert settings.storage is not None
    root = Path(settings.storage.removeprefix("dir://"))
    handle = await client.start_workflow(Echo.run, "large" * 10_000, id="away", task_queue=QUEUE)
    away = await asyncio.to_thread(root.rename, root.with_name("unmounted"))
    async with worker(client, cache=0):
        async with asyncio.timeout(30):
            while WORKFLOW_TASK_FAILED not in [event.event_type async for event in handle.fetch_history_events()]:
                await asyncio.sleep(0.05)
        await asyncio.to_thread(away.rename, root)
        assert await asyncio.wait_for(handle.result(), 60) == "large" * 10_000
    await replay(client, "away", data_converter(settings))


async def test_a_schedule_may_have_a_large_input(client: Client, settings: Settings) -> None:
    text = "scheduled" * 10_000
    action = ScheduleActionStartWorkflow(Echo.run, text, id="report", task_queue=QUEUE)
    async with worker(client):
        schedule = await client.create_schedule("nightly", Schedule(action=action, spec=ScheduleSpec()))
        await schedule.trigger()
        found: list[str] = []
        for _ in range(200):
            found = [run.id async for run in client.list_workflows("WorkflowId STARTS_WITH 'report'")]
            if found:
                break
            await asyncio.sleep(0.05)
        assert await client.get_workflow_handle(found[0], result_type=str).result() == text
    await replay(client, found[0], data_converter(settings))


async def test_two_workers_with_their_own_driver_share_one_store(client: Client, settings: Settings) -> None:
    other = await connect(settings)
    async with worker(client, cache=0), worker(other, cache=0):
        texts = [f"{number}" * 5_000 for number in range(10, 30)]
        runs = [client.execute_workflow(Echo.run, text, id=f"pair-{text[:2]}", task_queue=QUEUE) for text in texts]
        assert await asyncio.gather(*runs) == texts
    await replay(client, "pair-10", data_converter(settings))
