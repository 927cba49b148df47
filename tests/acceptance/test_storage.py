"""The directory store: what is stored comes back, for its own run, whatever others do meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
    WorkflowSerializationContext,
)

from outlast.errors import OutlastError
from outlast.settings import Settings, data_converter
from outlast.storage import DirectoryStorage, Owner, is_tombstone, open_storage
from outlast.storage.owner import REPLAY_NAMESPACE

ALICE = Owner("default", "workflow", "alice")
MALLORY = Owner("default", "workflow", "mallory")
SECRET = Payload(metadata={"encoding": b"json/plain"}, data=b'"the secret of alice"')

ROOT = Path(__file__).parents[2]


def put(store: DirectoryStorage, *payloads: Payload) -> list[StorageDriverClaim]:
    return asyncio.run(store.store(StorageDriverStoreContext(), payloads))


def get(store: DirectoryStorage, *claims: StorageDriverClaim) -> list[Payload]:
    return asyncio.run(store.retrieve(StorageDriverRetrieveContext(), claims))


def lost(payload: Payload) -> str:
    """The reason that a tombstone gives."""
    value = json.loads(payload.data)
    assert is_tombstone(value), value
    return str(value["reason"])


def changed(claim: StorageDriverClaim, **parts: str) -> StorageDriverClaim:
    return StorageDriverClaim({**claim.claim_data, **parts})


def objects(root: Path) -> list[Path]:
    return [path for path in (root / "objects").rglob("*") if path.is_file()]


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStorage:
    return DirectoryStorage(tmp_path / "store").for_owner(ALICE)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> DirectoryStorage:
    """One store for all examples of a property."""
    return DirectoryStorage(tmp_path_factory.mktemp("shared"), fsync=False).for_owner(ALICE)


@given(data=st.lists(st.binary(max_size=5000), min_size=1, max_size=5), encoding=st.binary(max_size=20))
def test_what_was_stored_comes_back_in_order(shared: DirectoryStorage, data: list[bytes], encoding: bytes) -> None:
    payloads = [Payload(metadata={"encoding": encoding, "b": b"2", "a": b"1"}, data=item) for item in data]
    assert get(shared, *put(shared, *payloads)) == payloads


def test_equal_content_is_stored_once_for_a_run(store: DirectoryStorage) -> None:
    assert put(store, SECRET) == put(store, SECRET, SECRET)[:1]
    assert len(objects(store.root)) == 1


def test_files_are_for_their_owner_only(store: DirectoryStorage) -> None:
    put(store, SECRET)
    for path in [*objects(store.root), store.root / "key"]:
        assert path.stat().st_mode & 0o077 == 0
    assert store.root.stat().st_mode & 0o077 == 0
    assert list((store.root / "tmp").iterdir()) == []


def test_a_reference_is_short_and_shows_no_ids(store: DirectoryStorage) -> None:
    [claim] = put(store.for_owner(Owner("default", "workflow", "x" * 1000)), SECRET)
    assert len(json.dumps(dict(claim.claim_data))) < 220


def test_a_copied_reference_reads_nothing_in_another_run(store: DirectoryStorage) -> None:
    [claim] = put(store, SECRET)
    assert get(store, claim) == [SECRET]
    assert lost(get(store.for_owner(MALLORY), claim)[0]) == "the reference belongs to another run"
    elsewhere = Owner("other", "workflow", "alice")
    assert lost(get(store.for_owner(elsewhere), claim)[0]) == "the reference belongs to another run"


def test_a_reference_made_without_the_key_reads_nothing(store: DirectoryStorage) -> None:
    [claim] = put(store, SECRET)
    for forged in (
        changed(claim, run=MALLORY.fingerprint),
        changed(claim, ns="other"),
        changed(claim, mac="0" * 32),
        changed(claim, mac="\ud800"),
        changed(claim, object=hashlib.sha256(b"another").hexdigest()),
        StorageDriverClaim({key: value for key, value in claim.claim_data.items() if key != "mac"}),
    ):
        assert lost(get(store, forged)[0]) == "the reference is forged"


@pytest.mark.parametrize(
    "path", ["../../key", "/etc/passwd", "..", "", "a/b", "\0", "A" * 64, "0" * 63, "0" * 64 + "\n"]
)
def test_no_reference_leads_out_of_the_store(store: DirectoryStorage, path: str) -> None:
    [claim] = put(store, SECRET)
    for forged in (changed(claim, object=path), changed(claim, run=path)):
        assert lost(get(store, forged)[0]) == "the reference is malformed"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.dictionaries(st.sampled_from(["ns", "run", "object", "mac", "x"]), st.text(max_size=70)))
def test_no_reference_makes_it_raise(shared: DirectoryStorage, parts: dict[str, str]) -> None:
    [claim] = put(shared, SECRET)
    forged = changed(claim, **parts)
    [found] = get(shared.for_owner(MALLORY), forged)
    assert lost(found)
    [found] = get(shared, StorageDriverClaim(parts))
    assert lost(found)


def test_a_missing_object_is_a_tombstone_and_a_line_in_the_log(
    store: DirectoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    [claim] = put(store, SECRET)
    [path] = objects(store.root)
    path.unlink()
    assert lost(get(store, claim)[0]) == f"object {path.name[:12]} is not in the store"
    assert path.name[:12] in caplog.text


def test_a_damaged_object_is_a_tombstone_and_storing_it_again_heals_a_cut_one(store: DirectoryStorage) -> None:
    [claim] = put(store, SECRET)
    [path] = objects(store.root)
    path.write_bytes(path.read_bytes()[:-1])
    assert lost(get(store, claim)[0]) == f"object {path.name[:12]} is damaged"
    put(store, SECRET)
    assert get(store, claim) == [SECRET]


def test_a_store_that_is_away_for_now_raises_so_that_temporal_tries_again(store: DirectoryStorage) -> None:
    [claim] = put(store, SECRET)
    away = store.root.rename(store.root.with_name("away"))
    with pytest.raises(FileNotFoundError):
        get(store, claim)
    with pytest.raises(OSError, match="tmp"):
        put(store, Payload(data=b"new"))
    away.rename(store.root)
    assert get(store, claim) == [SECRET]


def test_a_store_without_its_key_is_refused_instead_of_losing_every_object(store: DirectoryStorage) -> None:
    put(store, SECRET)
    (store.root / "key").unlink()
    with pytest.raises(OutlastError, match="its file `key` is gone"):
        DirectoryStorage(store.root)


def test_a_place_that_cannot_be_a_store_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutlastError, match="OUTLAST_STORAGE"):
        DirectoryStorage(tmp_path / "file")


@pytest.mark.parametrize(
    "url", ["", "s3://bucket", "dir:/x", "dir://host/x", "/x", "dir:///x?a=1", "dir:///x?", "DIR:///x", "dir:///%00"]
)
def test_a_url_of_another_kind_is_refused_with_what_is_allowed(url: str) -> None:
    with pytest.raises(ValueError, match="dir:///absolute/path"):
        open_storage(url)


def test_a_url_names_its_directory(tmp_path: Path) -> None:
    assert open_storage(f"dir://{tmp_path}/with%20space").root == tmp_path / "with space"
    assert open_storage(f"dir://{tmp_path}/quick?fsync=off").root == tmp_path / "quick"


def test_without_a_serialization_context_the_target_is_the_owner(tmp_path: Path) -> None:
    bare = DirectoryStorage(tmp_path)
    context = StorageDriverStoreContext(StorageDriverWorkflowInfo(namespace="default", id="alice"))
    [claim] = asyncio.run(bare.store(context, [SECRET]))
    assert get(bare.for_owner(ALICE), claim) == [SECRET]
    assert lost(get(bare.for_owner(MALLORY), claim)[0])
    [for_all] = put(bare, SECRET)
    assert get(bare.for_owner(MALLORY), for_all) == [SECRET]


def test_a_scheduled_run_reads_what_was_stored_for_its_schedule() -> None:
    scheduled = Owner("default", "workflow", "report-2026-12-01T09:00:00Z")
    assert scheduled.may_read("default", Owner("default", "workflow", "report").fingerprint)
    assert not scheduled.may_read("default", Owner("default", "workflow", "rep").fingerprint)


def test_a_replay_reads_its_run_in_any_namespace_and_writes_nothing(store: DirectoryStorage) -> None:
    [claim] = put(store, SECRET)
    replay = store.for_owner(Owner(REPLAY_NAMESPACE, "workflow", "alice"))
    assert get(replay, claim) == [SECRET]
    assert lost(get(store.for_owner(Owner(REPLAY_NAMESPACE, "workflow", "mallory")), claim)[0])
    put(replay, Payload(data=b"new"))
    assert len(objects(store.root)) == 1


def test_an_activity_of_a_run_and_the_run_are_one_owner() -> None:
    activity = ActivitySerializationContext(
        namespace="default", activity_id="1", activity_type="t", activity_task_queue="q",
        workflow_id="alice", workflow_type="w", is_local=False,
    )  # fmt: skip
    workflow = WorkflowSerializationContext(namespace="default", workflow_id="alice")
    assert Owner.of_context(activity) == Owner.of_context(workflow) == ALICE


@pytest.mark.parametrize(
    ("metadata", "data"),
    [
        ({"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}, b"not json"),
        ({"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}, b'{"a": 1}'),
        (
            {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"},
            b'{"driverName": "nope", "claimData": {}}',
        ),
        ({"encoding": b"json/external-storage-reference"}, b"{}"),
        ({"encoding": b"json/plain", "__temporal_external_storage_reference": b"true"}, b"1"),
        ({"__temporal_external_storage_reference": b"true"}, b"\xff"),
    ],
)
@pytest.mark.parametrize("with_storage", [True, False])
async def test_no_payload_that_looks_like_a_reference_makes_the_converter_raise(
    metadata: dict[str, bytes], data: bytes, with_storage: bool, tmp_path: Path
) -> None:
    converter = data_converter(Settings(storage=f"dir://{tmp_path}" if with_storage else None))
    poison = Payload(metadata=metadata, data=data)
    good = (await converter.encode(["fine"]))[0]
    found = await converter.decode([good, poison])
    assert found[0] == "fine"
    assert is_tombstone(found[1])


WRITER = """
import asyncio, hashlib, sys
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverStoreContext
from outlast.storage import DirectoryStorage, Owner

async def main(root, seed, count):
    store = DirectoryStorage(root).for_owner(Owner("default", "workflow", "alice"))
    print("ready", flush=True)
    for number in range(int(count)):
        own = Payload(data=f"{seed}-{number}".encode() * 2000)
        both = Payload(data=f"both-{number}".encode() * 2000)
        for claim in await store.store(StorageDriverStoreContext(), [own, both]):
            print(dict(claim.claim_data), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def writer(root: Path, seed: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", WRITER, str(root), str(seed), str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_processes_that_write_at_once_share_one_key_and_every_object_is_whole(tmp_path: Path) -> None:
    root = tmp_path / "new"
    claims: list[StorageDriverClaim] = []
    for process in [writer(root, seed, 20) for seed in range(4)]:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        claims += [StorageDriverClaim(json.loads(line.replace("'", '"'))) for line in out.splitlines()[1:]]
    assert len(claims) == 160
    found = get(DirectoryStorage(root).for_owner(ALICE), *claims)
    assert len({payload.data for payload in found}) == len(objects(root)) == 100
    assert not any(b"outlast" in payload.data for payload in found)


def test_a_writer_killed_at_any_moment_leaves_whole_objects_only(tmp_path: Path) -> None:
    kills = 6
    for seed in range(kills):
        process = writer(tmp_path, seed, 10_000)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        told = [process.stdout.readline() for _ in range(1 + 3 * seed)]
        time.sleep(random.Random(seed).uniform(0, 0.01))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert all(line.startswith("{") for line in told)
    for path in objects(tmp_path):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    assert len(objects(tmp_path)) > kills
