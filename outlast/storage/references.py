"""A data converter that no stored or forged reference can make fail, and that reads only a run's own objects.

Temporal raises for a reference that it cannot read, before any handler runs: one signal of 100 bytes makes a run stick
for ever. And a reference is just a payload: whoever may send a signal may copy one out of another run's history.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from google.protobuf import json_format
from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.converter import (
    DataConverter,
    ExternalStorage,
    SerializationContext,
    StorageDriverStoreContext,
    WithSerializationContext,
)

from outlast.storage.directory import DirectoryStorage
from outlast.storage.owner import Owner
from outlast.storage.tombstone import tombstone

_MESSAGE = ExternalStorageReference.DESCRIPTOR.full_name.encode()
_OLD_ENCODING = b"json/external-storage-reference"
_MARKER = "__temporal_external_storage_reference"
_KEPT_CONTEXTS = 64


@dataclass(frozen=True)
class OwnedStorage(ExternalStorage, WithSerializationContext):
    """External storage that tells its drivers for which run they store and read."""

    def with_context(self, context: SerializationContext) -> Self:
        """Temporal calls this before it converts something of a run."""
        owner = Owner.of_context(context)
        bound = [driver.for_owner(owner) if isinstance(driver, DirectoryStorage) else driver for driver in self.drivers]
        return dataclasses.replace(self, drivers=bound)


@dataclass(frozen=True)
class TotalDataConverter(DataConverter):
    """Temporal's data converter, except that an unreadable reference becomes a tombstone instead of an exception."""

    def with_context(self, context: SerializationContext) -> Self:
        """Temporal calls this up to six times per payload; the answer is kept."""
        kept: dict[SerializationContext, Self] = self.__dict__.setdefault("_kept", {})
        bound = kept.get(context)
        if bound is None:
            if len(kept) >= _KEPT_CONTEXTS:
                kept.clear()
            bound = kept[context] = super().with_context(context)
        return bound

    def _with_store_context(self, store_ctx: StorageDriverStoreContext) -> DataConverter:
        # As Temporal's, which builds all payload converters anew for each of six payloads a step.
        if self.external_storage is None:
            return self
        bound = copy.copy(self)
        object.__setattr__(bound, "external_storage", self.external_storage._with_store_context(store_ctx))
        bound.__dict__.pop("_kept", None)
        return bound

    async def _decode_reference_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
        # The first thing that Temporal does to whatever comes in; the one place of its inside that we build on.
        return [await self._checked(payload) if _looks_like_reference(payload) else payload for payload in payloads]

    async def _checked(self, payload: Payload) -> Payload:
        if self.external_storage is None:
            return tombstone("this process has no storage configured (OUTLAST_STORAGE)")
        try:
            [found] = await super()._decode_reference_payload_sequence([payload])
            driver_name = _driver_name(found.data)
        except Exception:  # a stranger's bytes may fail in any way
            return tombstone("the reference is malformed")
        if driver_name not in {driver.name() for driver in self.external_storage.drivers}:
            return tombstone("the reference names a storage driver that this process does not have")
        return found


@lru_cache(maxsize=4096)  # a model call repeats the references of the call before it
def _driver_name(data: bytes) -> str:
    return json_format.Parse(data, ExternalStorageReference(), ignore_unknown_fields=True).driver_name


def _looks_like_reference(payload: Payload) -> bool:
    encoding = payload.metadata.get("encoding")
    return (
        (encoding == b"json/protobuf" and payload.metadata.get("messageType") == _MESSAGE)
        or encoding == _OLD_ENCODING
        or _MARKER in payload.metadata
    )
