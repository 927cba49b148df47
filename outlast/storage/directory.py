"""Payloads as files in a directory of this machine, or of a file system that the workers share.

    ROOT/key                          32 random bytes, readable by the owner only
    ROOT/objects/ab/abcd.../SHA-256   one serialised payload; ``abcd...`` is its owner's fingerprint
    ROOT/tmp/                         files being written

What history holds is a *claim*: namespace, owner's fingerprint, the object's SHA-256, a MAC over the three with
ROOT/key, and a name that tells this store from others (eight digits of the key's hash). Nobody without the key can make
a claim, and a copied one is read for its owner only. All parts that become part of a path are hex digits that the MAC
covers.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import hmac
import os
import re
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)

from outlast.errors import OutlastError
from outlast.storage.owner import NOBODY, Owner
from outlast.storage.recent import RecentObjects
from outlast.storage.tombstone import lost_object, tombstone
from outlast.unreadable import OTHER_STORE

_HEX8: Final = re.compile(r"[0-9a-f]{8}")
_HEX32: Final = re.compile(r"[0-9a-f]{32}")
_HEX64: Final = re.compile(r"[0-9a-f]{64}")
_PATIENCE_SECONDS, _TRY_AGAIN_SECONDS = 5.0, 0.25
_QUICK: Final = 1_000_000
"""Bytes that may be hashed without a thread of their own."""


class _Object(NamedTuple):
    digest: str
    path: str
    data: bytes


class DirectoryStorage(StorageDriver):
    """Temporal storage driver over a directory; safe for any number of processes at once.

    A file is written under another name, flushed to the disk, and renamed: readers see all of it or nothing, also after
    a power cut. ``fsync=False`` leaves the flushing to the system, which is quicker and survives the death of every
    process, but not of the machine.

    An object that cannot be had (forged claim, another run's, missing, damaged) is read as a
    :func:`~outlast.storage.tombstone.tombstone`. An object that cannot be had *now* (the disk is not mounted, no
    permission) raises ``OSError``: Temporal tries again until it is back.

    Nothing is ever deleted: keep an object as long as its run, and the namespace's retention after it.

    Raises:
        OutlastError: The directory holds objects but no key, or cannot be made or written.
    """

    def __init__(self, root: str | Path, *, fsync: bool = True) -> None:
        self.root = Path(root)
        self._objects = str(self.root / "objects")
        self._fsync = fsync
        self._owner: Owner | None = None
        self._recent = RecentObjects()
        try:
            self._key = self._load_key()
        except OSError as error:
            raise OutlastError(
                f"storage directory {self.root} cannot be used: {error.strerror or error}. It needs a place where this "
                "user may write; OUTLAST_STORAGE says where it is"
            ) from None
        self._name = hashlib.sha256(b"outlast store " + self._key).hexdigest()[:8]

    def name(self) -> str:
        """How references in a history call this driver."""
        return "outlast-dir"

    def type(self) -> str:
        """The kind of driver."""
        return "outlast.directory"

    def for_owner(self, owner: Owner | None) -> DirectoryStorage:
        """This storage as one run sees it: stores for that run, reads only its objects."""
        bound = copy.copy(self)
        bound._owner = owner
        return bound

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Write what is not there yet; for an activity tried for some seconds, since it may be one that runs once."""
        owner = self._owner or Owner.of_target(context.target) or NOBODY
        give_up = time.monotonic() + (_PATIENCE_SECONDS if activity.in_activity() else 0)
        while True:
            try:
                return await self._store_all(owner, payloads)
            except OSError:
                if time.monotonic() > give_up:
                    raise
                await asyncio.sleep(_TRY_AGAIN_SECONDS)

    async def _store_all(self, owner: Owner, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        if sum(payload.ByteSize() for payload in payloads) > _QUICK:
            return await asyncio.to_thread(lambda: [self._store(owner, payload) for payload in payloads])
        objects = [self._object(owner, payload) for payload in payloads]
        fresh = [] if owner.is_replay else [item for item in objects if self._recent.get(item.path) is None]
        if fresh:
            await asyncio.to_thread(self._write_all, fresh)
        return [self._claim(owner, item.digest) for item in objects]

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """Read; a tombstone for what is missing or not this run's."""
        if all(self._path_of(claim) in self._recent for claim in claims):
            return [self._retrieve(claim) for claim in claims]
        return await asyncio.to_thread(lambda: [self._retrieve(claim) for claim in claims])

    def _write_all(self, objects: Sequence[_Object]) -> None:
        for item in objects:
            self._write(item.path, item.data)

    def _object(self, owner: Owner, payload: Payload) -> _Object:
        data = payload.SerializeToString(deterministic=True)
        digest = hashlib.sha256(data).hexdigest()
        return _Object(digest, self._path(owner.fingerprint, digest), data)

    def _claim(self, owner: Owner, digest: str) -> StorageDriverClaim:
        mac = self._mac(owner.namespace, owner.fingerprint, digest)
        parts = {"ns": owner.namespace, "run": owner.fingerprint, "object": digest, "mac": mac, "in": self._name}
        return StorageDriverClaim(parts)

    def _store(self, owner: Owner, payload: Payload) -> StorageDriverClaim:
        item = self._object(owner, payload)
        if not owner.is_replay:
            self._write(item.path, item.data)
        return self._claim(owner, item.digest)

    def _retrieve(self, claim: StorageDriverClaim) -> Payload:
        parts = claim.claim_data
        namespace, run, digest = parts.get("ns", ""), parts.get("run", ""), parts.get("object", "")
        if not (_HEX32.fullmatch(run) and _HEX64.fullmatch(digest)):
            return tombstone("the reference is malformed")
        mac = parts.get("mac", "").encode("utf-8", "replace")
        if not hmac.compare_digest(self._mac(namespace, run, digest).encode(), mac):
            return self._unfit(parts.get("in", ""))
        if run != NOBODY.fingerprint and self._owner is not None and not self._owner.may_read(namespace, run):
            return tombstone("the reference belongs to another run")
        data = self._recent.get(path := self._path(run, digest))
        if data is None:
            try:
                data = Path(path).read_bytes()
            except FileNotFoundError:
                (self.root / "key").stat()  # raises if the whole store is away: then it is not lost, only unreachable
                return lost_object(f"object {digest[:12]} is not in the store")
            if hashlib.sha256(data).hexdigest() != digest:
                return lost_object(f"object {digest[:12]} is damaged")
            self._recent.keep(path, data)
        try:
            return Payload.FromString(data)
        except DecodeError:
            return lost_object(f"object {digest[:12]} is not a payload")

    def _unfit(self, store: str) -> Payload:
        """For a reference that this store has not given: another one's, which another worker may have, or forged."""
        if _HEX8.fullmatch(store) and store != self._name:
            return tombstone("the reference is another store's", {OTHER_STORE: f"{store}, not {self._name}"})
        return tombstone("the reference is forged")

    def _path(self, run: str, digest: str) -> str:
        return f"{self._objects}/{run[:2]}/{run}/{digest}"

    def _path_of(self, claim: StorageDriverClaim) -> str:
        return self._path(claim.claim_data.get("run", ""), claim.claim_data.get("object", ""))

    def _mac(self, namespace: str, run: str, digest: str) -> str:
        message = f"{run} {digest} {namespace}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, "sha256").hex()[:32]

    def _write(self, path: str, data: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            if Path(path).stat().st_size == len(data):
                self._recent.keep(path, data)
                return
        temporary = self._write_temporary(data)  # first: fails if the whole store is away, instead of making a new one
        folder = Path(path).parent
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                self._flush_directory(folder.parent)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._flush_directory(folder)
        self._recent.keep(path, data)

    def _write_temporary(self, data: bytes) -> Path:
        handle, name = tempfile.mkstemp(dir=self.root / "tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                if self._fsync:
                    file.flush()
                    os.fsync(handle)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return Path(name)

    def _flush_directory(self, path: Path) -> None:
        if self._fsync and os.name == "posix":
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _load_key(self) -> bytes:
        """The store's key; the first process to come makes it, and all others find the same one."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.root / "tmp").mkdir(mode=0o700, exist_ok=True)
        path = self.root / "key"
        if not path.exists():
            if (self.root / "objects").exists() and not path.exists():  # another process may just have made both
                raise OutlastError(
                    f"storage directory {self.root} holds objects but its file `key` is gone: without it none of them "
                    "can be read. Put it back from a backup, or choose an empty directory"
                )
            ours = self._write_temporary(secrets.token_bytes(32))
            with contextlib.suppress(FileExistsError):
                os.link(ours, path)
            ours.unlink()
            self._flush_directory(self.root)
        return path.read_bytes()
