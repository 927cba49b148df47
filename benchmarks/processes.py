"""Workers in processes of their own, with what they use of the processor."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path

import psutil
import temporalio.client
from temporalio.api.history.v1 import HistoryEvent

from outlast.client import Client
from outlast.state import HistoryLimits

_numbers = itertools.count(1)


class WorkerProcess:
    """A benchmark's worker. ``kind``: ``bare`` or ``agents``."""

    def __init__(self, kind: str, address: str, storage: str | None = None) -> None:
        self.kind = kind
        self.task_queue = f"{kind}-{os.getpid()}-{next(_numbers)}"
        self._command = [sys.executable, "-m", f"benchmarks.{kind}", address, self.task_queue]
        self._command += [storage] if storage is not None else []
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> float:
        """Start it without waiting; the time at which it was started."""
        began = time.time()
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = str(Path(tempfile.gettempdir(), "outlast-benchmarks"))  # as installed: compiled
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, env=env)
        return began

    async def wait_until_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        output = self._process.stdout
        assert await asyncio.to_thread(output.readline) == b"ready\n"
        threading.Thread(target=output.read, daemon=True).start()  # Temporal logs there; a full pipe would stop it

    @property
    def cpu_seconds(self) -> float:
        assert self._process is not None
        return cpu_seconds(self._process.pid)

    @property
    def resident_bytes(self) -> int:
        assert self._process is not None
        return int(psutil.Process(self._process.pid).memory_info().rss)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@asynccontextmanager
async def worker_process(kind: str, address: str, storage: str | None = None) -> AsyncIterator[WorkerProcess]:
    """A worker that is ready."""
    worker = WorkerProcess(kind, address, storage)
    worker.spawn()
    try:
        await worker.wait_until_ready()
        yield worker
    finally:
        worker.stop()


def cpu_seconds(pid: int) -> float:
    """User and system time so far."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


Handle = temporalio.client.WorkflowHandle[object, object]


async def start(
    temporal: temporalio.client.Client,
    worker: WorkerProcess,
    steps: int,
    size: int,
    limits: HistoryLimits | None = None,
) -> Handle:
    """A run of so many steps with results of so many bytes."""
    run_id = f"{worker.task_queue}-{steps}x{size}-{time.time_ns()}"
    if worker.kind == "bare":
        await temporal.start_workflow("Bare", args=[steps, size], id=run_id, task_queue=worker.task_queue)
    else:
        client = Client(temporal, task_queue=worker.task_queue, history_limits=limits)
        await client.start("bench", f"{steps} {size}", id=run_id)
    return temporal.get_workflow_handle(run_id)


async def first_activity_at(handle: Handle) -> float:
    """When the first activity of a run was started, as the server saw it."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.HasField("activity_task_started_event_attributes"):
            return _seconds(event)
    raise AssertionError("the run ended without a step")


def _seconds(event: HistoryEvent) -> float:
    return event.event_time.ToDatetime(UTC).timestamp()
