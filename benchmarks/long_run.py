"""A run of ten thousand steps, through continue-as-news: whether its last thousand costs what its first did.

The conversation is kept short by summaries; the transcript, which keeps everything, grows all the time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
import time
from dataclasses import dataclass

import temporalio.client
from temporalio.client import WorkflowHistory

from benchmarks.history import bytes_per_step
from benchmarks.processes import Handle, WorkerProcess, cpu_seconds, worker_process
from outlast.client import Client
from outlast.devserver import DevServer
from outlast.settings import Settings, connect
from outlast.testing.histories import fetch_histories

EVERY = 1000


@dataclass(frozen=True)
class Reading:
    """What the worker and the server had used when the run had come to a step."""

    step: int
    seconds: float
    worker_cpu: float
    server_cpu: float
    resident: int


async def watch(handle: Handle, worker: WorkerProcess, server: DevServer, steps: int) -> list[Reading]:
    """Readings at the start and at about every thousandth step, until the run is done."""
    readings: list[Reading] = []
    ended = asyncio.create_task(handle.result())
    while not ended.done():
        step = await _step(handle)
        if step >= EVERY * len(readings):
            readings.append(_reading(step, worker, server))
        await asyncio.wait([ended], timeout=0.5)
    await ended
    return [*readings, _reading(steps, worker, server)]


async def _step(handle: Handle) -> int:
    status = await handle.query("status")
    assert isinstance(status, dict)
    if status["status"] == "paused":
        raise SystemExit(f"the run parked: {status}")
    return int(status["step"])


def _reading(step: int, worker: WorkerProcess, server: DevServer) -> Reading:
    assert server.pid is not None
    return Reading(step, time.perf_counter(), worker.cpu_seconds, cpu_seconds(server.pid), worker.resident_bytes)


def report(readings: list[Reading], histories: list[WorkflowHistory]) -> None:
    """Print a line per thousand steps, and the ratios of the last to the first."""
    print(f"{'steps':>16}{'wall ms/step':>14}{'worker CPU':>12}{'server CPU':>12}{'worker MB':>11}")
    costs: list[tuple[float, float]] = []
    for one, two in itertools.pairwise(readings):
        count = max(1, two.step - one.step)
        wall, worker, server = (
            (after - before) * 1000 / count
            for before, after in (
                (one.seconds, two.seconds),
                (one.worker_cpu, two.worker_cpu),
                (one.server_cpu, two.server_cpu),
            )
        )
        if count >= EVERY / 2:
            costs.append((wall, worker))
        place = f"{one.step}-{two.step}"
        print(f"{place:>16}{wall:14.1f}{worker:12.1f}{server:12.1f}{two.resident / 1e6:11.0f}")
    (wall, worker), (last_wall, last_worker) = costs[0], costs[-1]
    print(f"last thousand over first: wall {last_wall / wall:.2f}, worker CPU {last_worker / worker:.2f}")
    sizes = [sum(event.ByteSize() for event in history.events) for history in histories]
    print(
        f"{len(histories)} executions; the largest: {max(sizes) / 1e6:.2f} MB, "
        f"{max(len(history.events) for history in histories)} events"
    )
    steps = [cost for history in histories for cost in bytes_per_step(history)]
    early, late = steps[40:60], steps[-60:-40]
    print(f"bytes of history per step: {sum(early) / len(early):,.0f} early, {sum(late) / len(late):,.0f} late")


async def main(steps: int, size: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"dir://{folder}"
        async with DevServer() as server, worker_process("long_agents", server.address, url) as worker:
            temporal = await connect(Settings.load(address=server.address, storage=url, environ={}))
            print(f"{steps} steps with results of {size} bytes, conversation summarized, one worker")
            report(*await _run(temporal, worker, server, steps, size))


async def _run(
    temporal: temporalio.client.Client, worker: WorkerProcess, server: DevServer, steps: int, size: int
) -> tuple[list[Reading], list[WorkflowHistory]]:
    run = await Client(temporal, task_queue=worker.task_queue).start("long", f"{steps} {size}")
    readings = await watch(temporal.get_workflow_handle(run.id), worker, server, steps)
    return readings, await fetch_histories(temporal, [(run.id, None)])


def run(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks long_run", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=4096)
    asyncio.run(main(**vars(parser.parse_args(arguments))))
