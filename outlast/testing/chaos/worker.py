"""A worker of the chaos agent; its storage is as slow as a file beside it says."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import temporalio.client
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverClaim, StorageDriverRetrieveContext, StorageDriverStoreContext

from outlast.errors import OutlastError
from outlast.settings import Settings, connect
from outlast.storage import DirectoryStorage, OwnedStorage
from outlast.testing.chaos.agents import chaos
from outlast.worker import make_worker

SLOW_FILE = "slow"
SLOW_SECONDS = 1.0


class SlowableStorage(DirectoryStorage):
    """A directory that takes its time while a file named ``slow`` lies beside it."""

    async def _wait(self) -> None:
        if await asyncio.to_thread((self.root.parent / SLOW_FILE).exists):
            await asyncio.sleep(SLOW_SECONDS)

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """As the directory's, later."""
        await self._wait()
        return await super().store(context, payloads)

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        """As the directory's, later."""
        await self._wait()
        return await super().retrieve(context, claims)


async def main(address: str, storage: str) -> None:
    """Serve until killed."""
    settings = Settings.load(address=address, storage=f"dir://{storage}", environ={})
    client = await _connected(settings, Path(storage))
    await make_worker(client, [chaos], settings).run()


async def _connected(settings: Settings, storage: Path) -> temporalio.client.Client:
    """A client, once the server and the storage are there: what a supervisor would see to."""
    while True:
        try:
            config = (await connect(settings)).config()
            converter = config["data_converter"]
            assert isinstance(converter.external_storage, OwnedStorage)
            slowable = dataclasses.replace(converter.external_storage, drivers=[SlowableStorage(storage)])
        except OutlastError:
            await asyncio.sleep(0.2)
        else:
            config["data_converter"] = dataclasses.replace(converter, external_storage=slowable)
            return temporalio.client.Client(**config)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
