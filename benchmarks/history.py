"""What a long run leaves in Temporal's history, with a directory as storage and without any.

First 300 steps with results of 4 KB, in bytes per step, early and late; then runs that kill the obvious design (the
whole conversation in every model call: 158 steps of 4 KB, 70 of 20 KB).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import temporalio.client
from temporalio.client import WorkflowExecutionStatus, WorkflowHistory

from benchmarks.processes import Handle, WorkerProcess, start, worker_process
from outlast.client import Client
from outlast.devserver import DevServer
from outlast.settings import Settings, connect
from outlast.testing.histories import fetch_histories

LONG = ((1000, 4096), (200, 20_480))
PATIENCE = 600.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended, and what it left."""

    status: str
    seconds: float
    executions: list[int]
    steps: list[int]

    @property
    def total(self) -> int:
        return sum(self.executions)


async def run_one(temporal: temporalio.client.Client, worker: WorkerProcess, steps: int, size: int) -> Outcome:
    """One run to its end, or until it parks or the time is up."""
    began = time.perf_counter()
    handle = await start(temporal, worker, steps, size)
    status = await _wait(temporal, handle)
    seconds = time.perf_counter() - began
    histories = await fetch_histories(temporal, [(handle.id, None)])
    executions = [sum(event.ByteSize() for event in history.events) for history in histories]
    return Outcome(status, seconds, executions, [cost for history in histories for cost in bytes_per_step(history)])


async def _wait(temporal: temporalio.client.Client, handle: Handle) -> str:
    run = Client(temporal).get(handle.id)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        described = await handle.describe()
        if described.status != WorkflowExecutionStatus.RUNNING:
            return described.status.name.lower() if described.status else "?"
        if (info := await run.info()).status == "paused":
            return f"paused at step {info.step}: {info.error[:160]}"
        await asyncio.sleep(0.2)
    return "still running"


def bytes_per_step(history: WorkflowHistory) -> list[int]:
    """Bytes of the events from one model call to the next."""
    steps: list[int] = []
    for event in history.events:
        activity = event.activity_task_scheduled_event_attributes.activity_id
        if activity.endswith(".model"):
            steps.append(0)
        if steps:
            steps[-1] += event.ByteSize()
    return steps


def _size_of(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


async def main(steps: int, only_short: bool) -> None:
    """Measure and print."""
    async with DevServer() as server:
        with tempfile.TemporaryDirectory() as folder:
            await _with_storage(server, folder, steps, only_short)
        await _without_storage(server, steps, only_short)


async def _with_storage(server: DevServer, folder: str, steps: int, only_short: bool) -> None:
    url = f"dir://{folder}"
    temporal = await connect(Settings.load(address=server.address, storage=url, environ={}))
    async with worker_process("agents", server.address, url) as worker:
        outcome = await run_one(temporal, worker, steps, 4096)
        early, late = outcome.steps[5:25], outcome.steps[-25:-5]
        print(f"storage: {steps} steps of 4 KB: {_line(outcome)}; store {_size_of(folder) / 1e6:.1f} MB")
        print(f"  bytes per step: {sum(early) / len(early):,.0f} early, {sum(late) / len(late):,.0f} late")
        for count, size in () if only_short else LONG:
            print(
                f"storage: {count} steps of {size / 1024:.0f} KB: {_line(await run_one(temporal, worker, count, size))}"
            )


async def _without_storage(server: DevServer, steps: int, only_short: bool) -> None:
    temporal = await connect(Settings.load(address=server.address, environ={}))
    async with worker_process("agents", server.address) as worker:
        for count, size in ((steps, 4096),) if only_short else LONG:
            outcome = await run_one(temporal, worker, count, size)
            print(f"no storage: {count} steps of {size / 1024:.0f} KB: {_line(outcome)}")


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.status} in {outcome.seconds:.1f} s; history {outcome.total / 1e6:.2f} MB in "
        f"{len(outcome.executions)} executions, the largest {max(outcome.executions) / 1e6:.2f} MB"
    )


def run(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks history", description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only-short", action="store_true", help="leave out the runs of minutes")
    asyncio.run(main(**vars(parser.parse_args(arguments))))
