"""The faults, each injected when the ledger has come to a place, and noted with its time."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outlast.devserver import DevServer
from outlast.testing.chaos import ledger
from outlast.testing.chaos.agents import settings_for
from outlast.testing.chaos.proxy import Proxy
from outlast.testing.chaos.worker import SLOW_FILE

SECONDS = 2.0
"""How long a fault lasts that passes by itself."""


@dataclass(frozen=True)
class Fault:
    """One fault that was injected; ``pid`` is the worker that died of it."""

    kind: str
    began: float
    ended: float
    pid: int = 0


class Arena:
    """What faults happen to: workers, the server, the network between them, and the storage."""

    def __init__(self, folder: Path, server: DevServer, proxy: Proxy, model_url: str, workers: int) -> None:
        self.faults: list[Fault] = []
        self.surprises: list[str] = []
        self.ledger = folder / "ledger.jsonl"
        self._folder = folder
        self._storage = folder / "storage"
        self._server = server
        self._proxy = proxy
        self._environment = settings_for(str(self.ledger), model_url)
        self._workers = [self._start() for _ in range(workers)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "outlast.testing.chaos.worker", self._proxy.address, str(self._storage)]
        with (self._folder / "workers.log").open("ab") as log:
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

    def stop(self) -> None:
        """Kill all workers."""
        for worker in self._workers:
            self._check_alive(worker)
            worker.kill()
            worker.wait()

    def _check_alive(self, worker: subprocess.Popen[bytes]) -> None:
        if (code := worker.poll()) is not None:
            self.surprises.append(f"worker {worker.pid} ended by itself with exit code {code}; see workers.log")

    async def inject(self, plan: Mapping[int, str], dice: random.Random) -> None:
        """Each fault of the plan, once the ledger has so many lines."""
        kinds: dict[str, Callable[[random.Random], Awaitable[int]]] = {
            "worker killed": self._kill_worker,
            "worker hung": self._hang_worker,
            "server killed": self._kill_server,
            "connections cut": self._cut,
            "storage away": self._storage_away,
            "storage full": self._storage_full,
            "storage slow": self._storage_slow,
        }
        for lines, kind in sorted(plan.items()):
            while len(ledger.read(self.ledger)) < lines:
                await asyncio.sleep(0.02)
            began = time.time()
            pid = await kinds[kind](dice)
            self.faults.append(Fault(kind, began, time.time(), pid))

    async def _kill_worker(self, dice: random.Random) -> int:
        index = dice.randrange(len(self._workers))
        worker = self._workers[index]
        self._check_alive(worker)
        worker.send_signal(signal.SIGKILL)
        await asyncio.to_thread(worker.wait)
        self._workers[index] = self._start()
        return worker.pid

    async def _hang_worker(self, dice: random.Random) -> int:
        worker = self._workers[dice.randrange(len(self._workers))]
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(SECONDS)
        worker.send_signal(signal.SIGCONT)
        return 0

    async def _kill_server(self, _dice: random.Random) -> int:
        await self._server.kill9()
        await self._server.start()
        return 0

    async def _cut(self, _dice: random.Random) -> int:
        self._proxy.cut()
        return 0

    async def _storage_away(self, _dice: random.Random) -> int:
        """As a disk that answers nothing: neither read, nor written, nor made anew."""
        away = self._storage.with_name("away")
        self._storage.rename(away)
        self._storage.touch()
        await asyncio.sleep(SECONDS)
        self._storage.unlink()
        away.rename(self._storage)
        return 0

    async def _storage_full(self, _dice: random.Random) -> int:
        """Nothing can be written, what is there can be read."""
        room, aside = self._storage / "tmp", self._storage / "tmp.aside"
        room.rename(aside)
        room.touch()
        await asyncio.sleep(SECONDS)
        room.unlink()
        aside.rename(room)
        return 0

    async def _storage_slow(self, _dice: random.Random) -> int:
        slow = self._folder / SLOW_FILE
        slow.touch()
        await asyncio.sleep(SECONDS)
        slow.unlink()
        return 0


def plan_for(runs: int, dice: random.Random) -> dict[int, str]:
    """Which fault comes at which line of the ledger."""
    shares = {
        "worker killed": runs // 4,
        "worker hung": runs // 25,
        "server killed": runs // 25,
        "connections cut": runs // 15,
        "storage away": runs // 25,
        "storage full": runs // 25,
        "storage slow": runs // 25,
    }
    kinds = [kind for kind, count in shares.items() for _ in range(max(1, count))]
    dice.shuffle(kinds)
    lines = dice.sample(range(runs // 2, runs * 18), len(kinds))
    return dict(zip(lines, kinds, strict=True))
