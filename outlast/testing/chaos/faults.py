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
from outlast.testing.chaos.agents import AT_MOST_ONCE, settings_for
from outlast.testing.chaos.proxy import Proxy
from outlast.testing.chaos.worker import SLOW_FILE

SECONDS = 2.0
"""How long a fault lasts that passes by itself."""

_LOOK_SECONDS, _POINT_SECONDS = 0.02, 60.0
NAMED_POINTS = {"worker killed amid a payment": "begin", "worker killed after a payment": "end"}
"""Kills of the very worker that has come to this line of a tool that runs at most once."""


@dataclass(frozen=True)
class Fault:
    """One fault that was injected, in seconds since the epoch; ``pid`` is the worker that died of it."""

    kind: str
    began: float
    ended: float
    pid: int = 0


class Arena:
    """What faults happen to: workers, the server, the network between them, and the storage."""

    def __init__(self, folder: Path, server: DevServer, proxy: Proxy, model_url: str, workers: int) -> None:
        self.faults: list[Fault] = []
        self.surprises: list[str] = []
        self.over = False
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
        """Each fault of the plan, once the ledger has so many lines; no more of them once it is ``over``."""
        reader = ledger.Reader(self.ledger)
        for lines, kind in sorted(plan.items()):
            while reader.count < lines and not self.over:
                await asyncio.sleep(_LOOK_SECONDS)
                reader.read()
            if self.over:
                return
            pid = await self._tool_process(reader, NAMED_POINTS[kind]) if kind in NAMED_POINTS else 0
            began = time.time()
            pid = await self._inject(kind, pid, dice)
            self.faults.append(Fault(kind, began, time.time(), pid))

    async def _inject(self, kind: str, pid: int, dice: random.Random) -> int:
        if kind in ("worker killed", *NAMED_POINTS):
            return await self._kill_worker(pid, dice)
        others: dict[str, Callable[[random.Random], Awaitable[int]]] = {
            "worker hung": self._hang_worker,
            "server killed": self._kill_server,
            "connections cut": self._cut,
            "storage away": self._storage_away,
            "storage full": self._storage_full,
            "storage slow": self._storage_slow,
        }
        return await others[kind](dice)

    async def _tool_process(self, reader: ledger.Reader, at: str) -> int:
        """The worker that has just come to this line of a tool that runs at most once; 0 if none does any more."""
        for _ in range(round(_POINT_SECONDS / _LOOK_SECONDS)):
            await asyncio.sleep(_LOOK_SECONDS)
            alive = {worker.pid for worker in self._workers}
            for line in reversed(reader.read()):
                if line.tool in AT_MOST_ONCE and line.at == at and line.pid in alive:
                    return line.pid
        return 0

    async def _kill_worker(self, pid: int, dice: random.Random) -> int:
        pids = [worker.pid for worker in self._workers]
        index = pids.index(pid) if pid else dice.randrange(len(pids))
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
        "worker killed": runs // 5,
        "worker killed amid a payment": runs // 25,
        "worker killed after a payment": runs // 25,
        "worker hung": runs // 25,
        "server killed": runs // 25,
        "connections cut": runs // 15,
        "storage away": runs // 25,
        "storage full": runs // 25,
        "storage slow": runs // 25,
    }
    kinds = [kind for kind, count in shares.items() for _ in range(max(1, count))]
    dice.shuffle(kinds)
    lines = dice.sample(range(runs // 2, runs * 17), len(kinds))
    return dict(zip(lines, kinds, strict=True))
