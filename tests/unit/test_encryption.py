"""The codec: only the right run with the right key reads, everything else passes or is a tombstone; nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.converter import ActivitySerializationContext, DataConverter, WorkflowSerializationContext

from outlast.encryption import KEY_ID, REPEATABLE_FROM, PayloadEncryption, is_encrypted
from outlast.keyring import KEYS, Keyring, new_key
from outlast.storage import is_tombstone
from outlast.unreadable import lacking

A, B = (new_key(id) for id in "ab")
SECRET = "MARKER-secret"


def codec(*keys: str, run: str | None = "run-1", namespace: str = "default") -> PayloadEncryption:
    found = PayloadEncryption(Keyring.from_text(",".join(keys), KEYS) if keys else Keyring())
    return found if run is None else found.with_context(WorkflowSerializationContext(namespace, run))


def plain(value: Any = SECRET) -> Payload:
    return Payload(metadata={"encoding": b"json/plain", "mine": b"MARKER-metadata"}, data=json.dumps(value).encode())


async def sealed(by: PayloadEncryption, payload: Payload) -> Payload:
    [found] = await by.encode([payload])
    return found


async def opened(by: PayloadEncryption, payload: Payload) -> Payload:
    [found] = await by.decode([payload])
    return found


def reason(payload: Payload) -> str:
    value = json.loads(payload.data)
    assert is_tombstone(value)
    return str(value["reason"])


async def test_what_is_encrypted_comes_back_and_shows_nothing() -> None:
    found = await sealed(codec(A), plain())
    assert b"MARKER" not in found.SerializeToString()
    assert found.metadata[KEY_ID] == b"a"
    assert await opened(codec(A), found) == plain()


@given(st.binary(max_size=5000), st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3))
async def test_any_payload_comes_back(data: bytes, metadata: dict[str, bytes]) -> None:
    payload = Payload(metadata=metadata, data=data)
    assert await opened(codec(A), await sealed(codec(A), payload)) == payload


async def test_several_megabytes_come_back() -> None:
    payload = plain("x" * 5_000_000)
    assert await opened(codec(A), await sealed(codec(A), payload)) == payload


async def test_activities_of_a_run_read_what_the_run_wrote() -> None:
    context = ActivitySerializationContext("default", "s0001", "call_model", "q", "run-1", "AgentRun", False)
    found = await sealed(codec(A), plain())
    assert await opened(codec(A, run=None).with_context(context), found) == plain()


async def test_the_first_key_encrypts_and_every_key_decrypts() -> None:
    old = await sealed(codec(A), plain())
    new = await sealed(codec(B, A), plain())
    assert new.metadata[KEY_ID] == b"b"
    assert [await opened(codec(B, A), found) for found in (old, new)] == [plain(), plain()]


async def test_a_plain_payload_passes() -> None:
    assert await opened(codec(A), plain()) == plain()
    assert await opened(codec(), plain()) == plain()


async def test_without_keys_nothing_is_encrypted_and_what_is_encrypted_is_named() -> None:
    assert await sealed(codec(), plain()) == plain()
    found = await opened(codec(), await sealed(codec(A), plain()))
    assert "encrypted with the key 'a'" in reason(found)
    assert "OUTLAST_ENCRYPTION_KEYS" in (lacking(found.metadata) or "")


async def test_an_unknown_key_is_named() -> None:
    found = await opened(codec(B), await sealed(codec(A), plain()))
    assert "encrypted with the key 'a', which this process does not have" in reason(found)


async def test_another_key_of_the_same_id_reads_nothing_and_is_no_missing_key() -> None:
    found = await opened(codec(f"a{B[1:]}"), await sealed(codec(A), plain()))
    assert "does not fit the key 'a'" in reason(found)
    assert lacking(found.metadata) is None


@pytest.mark.parametrize("size", [10, REPEATABLE_FROM * 2])
async def test_a_payload_copied_to_another_run_reads_nothing(size: int) -> None:
    found = await sealed(codec(A), plain("x" * size))
    assert "another run" in reason(await opened(codec(A, run="run-2"), found))
    assert "another run" in reason(await opened(codec(A, namespace="other"), found))


async def test_a_payload_whose_owner_was_rewritten_reads_nothing() -> None:
    found = await sealed(codec(A), plain())
    other = await sealed(codec(A, run="run-2"), plain())
    found.data = other.data[:17] + found.data[17:]
    assert "does not fit the key" in reason(await opened(codec(A, run="run-2"), found))
    found.data = found.data[:1] + bytes(16) + (0).to_bytes(2, "big") + found.data[26:]  # as if it were of no run
    assert "does not fit the key" in reason(await opened(codec(A, run="run-2"), found))


async def test_a_payload_whose_key_id_was_rewritten_reads_nothing() -> None:
    found = await sealed(codec(A), plain())
    found.metadata[KEY_ID] = b"b"
    assert "does not fit the key 'b'" in reason(await opened(codec(A, f"b{A[1:]}"), found))


async def test_a_replayer_reads_a_run_of_any_namespace_but_of_no_other_id() -> None:
    found = await sealed(codec(A, namespace="production"), plain())
    assert await opened(codec(A, namespace="ReplayNamespace"), found) == plain()
    assert "another run" in reason(await opened(codec(A, namespace="ReplayNamespace", run="run-2"), found))


async def test_whoever_is_told_no_run_reads_all_that_its_keys_open() -> None:
    found = await sealed(codec(A), plain())
    assert await opened(codec(A, run=None), found) == plain()
    of_nobody = await sealed(codec(A, run=None), plain())
    assert await opened(codec(A), of_nobody) == plain()


async def test_a_large_payload_is_the_same_ciphertext_each_time_and_a_small_one_never() -> None:
    large, small = plain("x" * REPEATABLE_FROM), plain()
    assert await sealed(codec(A), large) == await sealed(codec(A), large)
    assert await sealed(codec(A), large) != await sealed(codec(A, run="run-2"), large)
    assert await sealed(codec(A), small) != await sealed(codec(A), small)


async def test_large_payloads_that_differ_have_different_nonces() -> None:
    found = {(await sealed(codec(A), plain("x" * 3000 + str(n)))).data[26:38] for n in range(200)}
    assert len(found) == 200


@given(st.binary(max_size=200), st.binary(max_size=20), st.integers(0, 400), st.binary(min_size=1, max_size=8))
async def test_no_forged_bytes_raise(data: bytes, key_id: bytes, at: int, piece: bytes) -> None:
    forged = Payload(metadata={"encoding": b"binary/encrypted", KEY_ID: key_id}, data=data)
    reason(await opened(codec(A), forged))
    forged.metadata[KEY_ID] = b"a"
    reason(await opened(codec(A), forged))
    damaged = await sealed(codec(A), plain())
    before = damaged.data
    damaged.data = before[:at] + piece + before[at + len(piece) :]
    if damaged.data != before:
        reason(await opened(codec(A), damaged))


async def test_a_cut_ciphertext_is_a_tombstone_wherever_it_was_cut() -> None:
    whole = await sealed(codec(A), plain())
    for length in range(len(whole.data)):
        reason(await opened(codec(A), Payload(metadata=dict(whole.metadata), data=whole.data[:length])))


async def test_a_payload_without_a_key_id_is_a_tombstone() -> None:
    reason(await opened(codec(A), Payload(metadata={"encoding": b"binary/encrypted"}, data=b"x")))


async def test_an_encrypted_payload_may_be_encrypted_again() -> None:
    once = await sealed(codec(A), plain())
    assert is_encrypted(await opened(codec(A), await sealed(codec(A), once)))


async def test_a_tombstone_is_json_for_every_converter() -> None:
    found = await opened(codec(B), await sealed(codec(A), plain()))
    [value] = await DataConverter.default.decode([found])
    assert is_tombstone(value)


async def test_a_missing_key_is_logged_once_however_many_payloads_need_it(caplog: pytest.LogCaptureFixture) -> None:
    strange = Payload(metadata={"encoding": b"binary/encrypted", KEY_ID: b"never-seen"}, data=b"x")
    for _ in range(100):
        await opened(codec(A), strange)
    assert [record.levelname for record in caplog.records if "never-seen" in record.getMessage()] == ["WARNING"]
