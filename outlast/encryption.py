"""Payloads encrypted with AES-256-GCM before they leave a process, each bound to the run that it belongs to.

    metadata    encoding = binary/encrypted, encryption-key-id = ID
    data        1 | owner (16) | length of namespace (2) | namespace | nonce (12) | ciphertext and tag (16)

``owner`` is the fingerprint of namespace and workflow id (:class:`outlast.storage.Owner`), zeros for a payload of no
run. Everything before the nonce, and the key's id, is authenticated. Each run has keys of its own, derived by HKDF from
the key of the ring, so that a ciphertext of one run means nothing in another.

Large payloads have a nonce that is derived from their content: the same chunk of a transcript, sent with each of
a hundred model calls, is then one object in the storage instead of a hundred. Small ones have a random nonce.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import hmac
import logging
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    DefaultFailureConverter,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
)

from outlast.errors import OutlastError
from outlast.keyring import KEY_BYTES, KEY_FILE, KEYS, Keyring
from outlast.storage.owner import NOBODY, Owner
from outlast.storage.tombstone import tombstone
from outlast.unreadable import MISSING_KEY, is_tombstone

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCODING: Final = b"binary/encrypted"
KEY_ID: Final = "encryption-key-id"
REPEATABLE_FROM: Final = 2048
"""Payloads from this size on, in bytes, are encrypted to the same bytes each time; below what any storage takes."""

_VERSION: Final = 1
_OWNER: Final = slice(1, 17)
_NONCE_BYTES, _TAG_BYTES = 12, 16
_QUICK: Final = 1_000_000
"""Bytes that may be encrypted without a thread of their own."""

_named: set[str] = set()
"""Ids of missing keys that the log knows of."""

_MAX_NAMED: Final = 1000


class _RunKeys(NamedTuple):
    cipher: AESGCM
    nonces: bytes


class PayloadEncryption(PayloadCodec, WithSerializationContext):
    """Temporal payload codec over a :class:`Keyring`.

    ``decode`` never raises. A payload that is not encrypted passes as it is, so that ``temporal workflow signal`` goes
    on working; one that cannot be decrypted (unknown key, another run's, forged, damaged) becomes a
    :func:`~outlast.storage.tombstone.tombstone`. With an empty ring nothing is encrypted.

    Raises:
        OutlastError: There are keys, and the package ``cryptography`` is not installed.
    """

    def __init__(self, ring: Keyring) -> None:
        self.ring = ring
        self._owner: Owner | None = None
        self._masters = dict(ring.keys)
        if ring.keys:
            _require_cryptography()

    def with_context(self, context: SerializationContext) -> Self:
        """Temporal calls this before it converts something of a run."""
        bound = copy.copy(self)
        bound._owner = Owner.of_context(context)
        return bound

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypt, with the first key."""
        if not self.ring.keys:
            return list(payloads)
        if sum(len(payload.data) for payload in payloads) > _QUICK:
            return await asyncio.to_thread(lambda: [self._encrypt(payload) for payload in payloads])
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypt what is encrypted, with whichever key it names."""
        if not any(is_encrypted(payload) for payload in payloads):
            return list(payloads)
        if sum(len(payload.data) for payload in payloads) > _QUICK:
            return await asyncio.to_thread(lambda: [self._decrypt(payload) for payload in payloads])
        return [self._decrypt(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        id, master = self.ring.keys[0]
        owner = self._owner or NOBODY
        head = _head(owner)
        keys = _run_keys(master, head)
        plain = payload.SerializeToString(deterministic=True)
        nonce = _content_nonce(keys, plain) if len(plain) >= REPEATABLE_FROM else os.urandom(_NONCE_BYTES)
        sealed = keys.cipher.encrypt(nonce, plain, _authenticated(head, id))
        return Payload(metadata={"encoding": ENCODING, KEY_ID: id.encode()}, data=head + nonce + sealed)

    def _decrypt(self, payload: Payload) -> Payload:
        if not is_encrypted(payload):
            return payload
        id = payload.metadata[KEY_ID].decode("ascii", "replace")[:64] if KEY_ID in payload.metadata else ""
        master = self._masters.get(id)
        if master is None:
            return _no_key(id)
        head, rest = _split(payload.data)
        if head is None:
            return tombstone("a ciphertext is malformed")
        if not self._may_read(head):
            return tombstone("a ciphertext belongs to another run")
        keys = _run_keys(master, head)
        try:
            plain = keys.cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _authenticated(head, id))
            return Payload.FromString(plain)
        except DecodeError:
            return tombstone("what was encrypted is no payload")
        except Exception:  # InvalidTag, and whatever a library may say to a stranger's bytes
            return tombstone(f"a ciphertext does not fit the key {id!r}: damaged, forged, or another key of that id")

    def _may_read(self, head: bytes) -> bool:
        if self._owner is None or head == _head(NOBODY):
            return True
        namespace = head[_OWNER.stop + 2 :].decode("utf-8", "replace")
        return self._owner.may_read(namespace, head[_OWNER].hex())


class ReadableFailures(DefaultFailureConverter):
    """Temporal's failure converter; a message that cannot be decrypted is replaced by the reason why."""

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        """Temporal calls this for a failure and each of its causes."""
        if failure.HasField("encoded_attributes"):
            try:
                [value] = payload_converter.from_payloads([failure.encoded_attributes])
            except Exception:  # a stranger's bytes may fail in any way
                value = None
            if is_tombstone(value):
                told = Failure()
                told.CopyFrom(failure)
                told.ClearField("encoded_attributes")
                told.message = f"the message cannot be read here: {value['reason']}"
                failure = told
        return super().from_failure(failure, payload_converter)


class EncodedFailures(ReadableFailures):
    """Puts messages and stack traces where the codec and storage reach them."""

    def __init__(self) -> None:
        super().__init__(encode_common_attributes=True)


def is_encrypted(payload: Payload) -> bool:
    """Whether a payload says that it is."""
    return payload.metadata.get("encoding") == ENCODING


def _require_cryptography() -> None:
    try:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401 - is it there?
    except ImportError:
        raise OutlastError(
            "payloads cannot be encrypted: the package `cryptography` is missing; "
            "install it with: pip install 'outlast[encryption]'"
        ) from None


def _no_key(id: str) -> Payload:
    text = f"a payload is encrypted with the key {id!r}, which this process does not have ({KEYS}, {KEY_FILE})"
    level = logging.DEBUG if id in _named else logging.WARNING  # a list of a thousand runs says it once
    if len(_named) < _MAX_NAMED:
        _named.add(id)
    return tombstone(text, {MISSING_KEY: id}, level=level)


def _head(owner: Owner) -> bytes:
    """What stands in the clear before nonce and ciphertext."""
    namespace = owner.namespace.encode("utf-8", "surrogatepass")
    whose = bytes(16) if owner == NOBODY else bytes.fromhex(owner.fingerprint)
    return bytes([_VERSION]) + whose + len(namespace).to_bytes(2, "big") + namespace


def _split(data: bytes) -> tuple[bytes | None, bytes]:
    """Head and rest; no head where the bytes cannot be ours."""
    start = _OWNER.stop + 2
    end = start + int.from_bytes(data[_OWNER.stop : start], "big")
    if data[:1] != bytes([_VERSION]) or len(data) < end + _NONCE_BYTES + _TAG_BYTES:
        return None, b""
    return data[:end], data[end:]


def _authenticated(head: bytes, id: str) -> bytes:
    return head + id.encode()


def _content_nonce(keys: _RunKeys, plain: bytes) -> bytes:
    """Differs for different contents; nobody without the key can tell what content it stands for."""
    return hmac.digest(keys.nonces, plain, hashlib.sha256)[:_NONCE_BYTES]


@lru_cache(maxsize=1024)
def _run_keys(master: bytes, head: bytes) -> _RunKeys:
    """The keys of one run (or of no run), derived from a key of the ring."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derive = HKDF(algorithm=SHA256(), length=2 * KEY_BYTES, salt=None, info=b"outlast payload encryption 1" + head)
    both = derive.derive(master)
    return _RunKeys(AESGCM(both[:KEY_BYTES]), both[KEY_BYTES:])
