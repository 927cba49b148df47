"""One agent step against a bare workflow's: wall time, processor time, and how soon a new worker does its first step.

Both run on one tuned dev server, each worker in its own process, in turn and in changing order. A step is a model call
and a tool call, each an activity that does nothing; the tool's result is a few bytes, then 4 KB. With 4 KB our model
calls carry a conversation of 100 KB on average, which the bare workflow does not have.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field

import temporalio.client

from benchmarks.processes import WorkerProcess, cpu_seconds, first_activity_at, start, worker_process
from outlast.devserver import DevServer
from outlast.settings import Settings, connect

BARE, INLINE, STORED, UNFLUSHED = "bare workflow", "outlast", "outlast, storage", "same, fsync=off"
KINDS = (BARE, INLINE, STORED, UNFLUSHED)
"""What is compared; ``outlast`` alone keeps the conversation in the history, as without any configuration."""

DEFAULT_POLLING = {"history.transferProcessorMaxPollRPS": 20}


@dataclass
class Samples:
    """Milliseconds per step, over the repetitions."""

    wall: list[float] = field(default_factory=list)
    worker: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)


async def measure(server: DevServer, steps: int, size: int, repetitions: int) -> dict[str, Samples]:
    """Samples per kind."""
    samples = {kind: Samples() for kind in KINDS}
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        temporal = await connect(Settings.load(address=server.address, storage=f"dir://{folder}", environ={}))
        workers = {kind: await stack.enter_async_context(_worker(kind, server, folder)) for kind in KINDS}
        for kind in KINDS:
            await (await start(temporal, workers[kind], 5, size)).result()
        for number in range(repetitions):
            for kind in random.Random(number).sample(KINDS, len(KINDS)):
                await _one(temporal, server, workers[kind], steps, size, samples[kind])
    return samples


def _worker(kind: str, server: DevServer, folder: str) -> AbstractAsyncContextManager[WorkerProcess]:
    storage = {STORED: f"dir://{folder}", UNFLUSHED: f"dir://{folder}?fsync=off"}.get(kind)
    return worker_process("bare" if kind == BARE else "agents", server.address, storage)


async def _one(
    temporal: temporalio.client.Client,
    server: DevServer,
    worker: WorkerProcess,
    steps: int,
    size: int,
    samples: Samples,
) -> None:
    assert server.pid is not None
    cpu, server_cpu, began = worker.cpu_seconds, cpu_seconds(server.pid), time.perf_counter()
    await (await start(temporal, worker, steps, size)).result()
    samples.wall.append((time.perf_counter() - began) * 1000 / steps)
    samples.worker.append((worker.cpu_seconds - cpu) * 1000 / steps)
    samples.server.append((cpu_seconds(server.pid) - server_cpu) * 1000 / steps)


async def measure_start(server: DevServer, repetitions: int) -> dict[str, list[float]]:
    """Seconds from a worker process's start to the first step of a run that waits for it."""
    temporal = await temporalio.client.Client.connect(server.address)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(repetitions):
        for kind in (BARE, INLINE):
            worker = WorkerProcess("bare" if kind == BARE else "agents", server.address)
            handle = await start(temporal, worker, 1, 200)
            await asyncio.sleep(0.3)  # the server has put its task where the worker will look
            began = worker.spawn()
            try:
                seconds[kind].append(await first_activity_at(handle) - began)
                await handle.result()
            finally:
                worker.stop()
    return seconds


def report(samples: dict[str, Samples], starts: dict[str, list[float]]) -> None:
    """Print the medians."""
    print(f"{'':16}{'wall ms/step':>14}{'worker CPU':>12}{'server CPU':>12}{'start to first step s':>24}")
    for kind in KINDS:
        one = samples[kind]
        figures = [statistics.median(values) for values in (one.wall, one.worker, one.server)]
        began = f"{statistics.median(starts[kind]):24.2f}" if starts[kind] else ""
        print(f"{kind:16}{figures[0]:14.1f}{figures[1]:12.1f}{figures[2]:12.1f}{began}")
    bare = samples[BARE]
    for kind in KINDS[1:]:
        ratios = [one / other for one, other in zip(samples[kind].wall, bare.wall, strict=True)]
        cpu = statistics.median(samples[kind].worker) / statistics.median(bare.worker)
        print(
            f"{kind}: wall ratio {statistics.median(ratios):.2f} (median of {len(ratios)}), worker CPU ratio {cpu:.2f}"
        )


async def main(steps: int, sizes: list[int], repetitions: int, starts: int) -> None:
    """Measure and print, on the embedded server and on one that looks for work as seldom as Temporal's default."""
    for name, config in {"embedded server": {}, "server with default polling": DEFAULT_POLLING}.items():
        async with DevServer(dynamic_config=config) as server:
            for size in sizes:
                samples = await measure(server, steps, size, repetitions)
                began = await measure_start(server, starts if not config and size == sizes[0] else 0)
                print(f"{name}: {steps} steps with results of {size} bytes, {repetitions} repetitions each, in turn")
                report(samples, began)


def run(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks overhead", description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 4096], help="bytes of a tool's result")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--starts", type=int, default=3)
    asyncio.run(main(**vars(parser.parse_args(arguments))))
