"""One agent step with ten prebuilt middlewares against the same agent's with none: wall time and processor time.

Both run on one tuned dev server, each worker in its own process, in turn and in changing order. A step is a model call
and a tool call, each an activity that does nothing; the tool's result is 4 KB of prose. The long run tells whether a
middleware's cost grows with the conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import temporalio.client

from benchmarks.processes import WorkerProcess, worker_process
from outlast.client import Client
from outlast.devserver import DevServer
from outlast.settings import Settings, connect

PLAIN, GUARDED = "plain", "guarded"
GOAL = 1.15


@dataclass
class Samples:
    """Milliseconds per step, over the repetitions."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def measure(server: DevServer, steps: int, size: int, repetitions: int) -> dict[str, Samples]:
    """Samples of both agents."""
    samples = {PLAIN: Samples(), GUARDED: Samples()}
    async with AsyncExitStack() as stack:
        storage = "dir://" + stack.enter_context(tempfile.TemporaryDirectory())
        temporal = await connect(Settings.load(address=server.address, storage=storage, environ={}))
        workers = {
            name: await stack.enter_async_context(worker_process("middleware_agents", server.address, storage))
            for name in samples
        }
        for name, worker in workers.items():
            await _one(temporal, worker, name, 5, size, Samples())
        for number in range(repetitions):
            for name in random.Random(number).sample(list(samples), len(samples)):
                await _one(temporal, workers[name], name, steps, size, samples[name])
    return samples


async def _one(
    temporal: temporalio.client.Client, worker: WorkerProcess, agent: str, steps: int, size: int, samples: Samples
) -> None:
    client = Client(temporal, task_queue=worker.task_queue)
    cpu, began = worker.cpu_seconds, time.perf_counter()
    run = await client.start(agent, f"{steps} {size}")
    result = await run.result()
    samples.wall.append((time.perf_counter() - began) * 1000 / steps)
    samples.cpu.append((worker.cpu_seconds - cpu) * 1000 / steps)
    assert result.steps == steps + 1, result.steps


def report(samples: dict[str, Samples]) -> None:
    """Print the medians, and the median of the ratios of neighbours in time."""
    for name, one in samples.items():
        wall, cpu = statistics.median(one.wall), statistics.median(one.cpu)
        print(f"{name:10}{wall:8.1f} ms/step wall{cpu:8.1f} ms/step worker CPU")
    plain, guarded = samples[PLAIN], samples[GUARDED]
    wall, cpu = _ratio(guarded.wall, plain.wall), _ratio(guarded.cpu, plain.cpu)
    print(f"ratio: wall {wall:.2f} (goal: at most {GOAL}), worker CPU {cpu:.2f}")


def _ratio(ours: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, others, strict=True))


async def main(steps: list[int], size: int, repetitions: int) -> None:
    """Measure and print, for every length of a run."""
    async with DevServer() as server:
        for number in steps:
            print(f"{number} steps with results of {size} bytes, {repetitions} repetitions each, in turn", flush=True)
            report(await measure(server, number, size, repetitions))


def run(arguments: list[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks middleware", description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[50, 300], help="lengths of runs")
    parser.add_argument("--size", type=int, default=4096, help="bytes of a tool's result")
    parser.add_argument("--repetitions", type=int, default=7)
    asyncio.run(main(**vars(parser.parse_args(arguments))))
