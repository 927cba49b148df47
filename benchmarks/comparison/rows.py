"""The rows of the table: what is measured, on which candidates, how often. Each returns figures per candidate."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from temporalio.api.history.v1 import HistoryEvent

from benchmarks.comparison import replays
from benchmarks.comparison.arena import Arena, PeerWorker
from benchmarks.comparison.candidates import BARE, Candidate
from benchmarks.comparison.histories import footprint, histories_of
from benchmarks.comparison.waiting import Broken, outcome, suspended
from benchmarks.processes import Handle, cpu_seconds

Figures: TypeAlias = dict[str, float | str]
"""Of one candidate in one row, by the name of the figure."""

LARGE = 20_480


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    steps: int = 50
    repetitions: int = 5
    sizes: tuple[int, ...] = (16, 4096)
    growth: int = 1000
    growth_sizes: tuple[int, ...] = (4096, LARGE)
    growth_seconds: float = 240.0
    batch: int = 50
    batches: int = 3
    waiting: int = 500
    settling: float = 90.0
    answers: int = 15
    replayed: int = 300


QUICK = Extent(
    steps=20, repetitions=1, growth=40, growth_sizes=(4096,), growth_seconds=30, batch=20, batches=1, waiting=50,
    settling=5, answers=3, replayed=40,
)  # fmt: skip


@dataclass
class Samples:
    """Values of one candidate, by figure."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def medians(self, bare: Samples) -> Figures:
        """Of the values, and of each round's ratio to the bare workflow in the same round."""
        found: Figures = {}
        for name, values in self.values.items():
            found[name] = statistics.median(values)
            pairs = zip(values, bare.values.get(name, ()), strict=False)
            if ratios := [one / other for one, other in pairs if other]:
                found[f"{name} ratio"] = statistics.median(ratios)
        return found


async def in_turn(
    arena: Arena,
    rounds: int,
    seconds: float,
    one: Callable[[Arena, PeerWorker, Samples], Awaitable[None]],
) -> dict[str, Figures]:
    """Every candidate once per round, in changing order; medians over the rounds."""
    samples = {candidate.name: Samples() for candidate in arena.candidates}
    for number in range(rounds):
        present = arena.present
        for candidate in random.Random(number).sample(present, len(present)):
            async with arena.attempt(candidate, seconds):
                await one(arena, arena.workers[candidate.name], samples[candidate.name])
    return {candidate.name: samples[candidate.name].medians(samples[BARE.name]) for candidate in arena.present}


async def warm_up(arena: Arena) -> None:
    """A worker per candidate, which has done a run."""
    await arena.start_all()
    for candidate in arena.present:
        async with arena.attempt(candidate, 60):
            await (await arena.workers[candidate.name].start("3 4096 0")).result()


async def steps(arena: Arena, extent: Extent) -> dict[str, Figures]:
    """Milliseconds of wall, worker and server per step; bytes and events of history per step, early and late."""
    await warm_up(arena)
    found: dict[str, Figures] = {candidate.name: {} for candidate in arena.candidates}
    for size in extent.sizes:

        async def one(arena: Arena, worker: PeerWorker, samples: Samples, size: int = size) -> None:
            await _timed_run(arena, worker, samples, extent.steps, size)

        for name, figures in (await in_turn(arena, extent.repetitions, 60 + extent.steps, one)).items():
            found[name].update(figures)
    return {name: figures for name, figures in found.items() if figures}


async def _timed_run(arena: Arena, worker: PeerWorker, samples: Samples, steps: int, size: int) -> None:
    assert arena.server.pid is not None
    cpu, server, began = worker.cpu_seconds, cpu_seconds(arena.server.pid), time.perf_counter()
    handle = await worker.start(f"{steps} {size} 0")
    await handle.result()
    samples.add(f"wall {size}", (time.perf_counter() - began) * 1000 / steps)
    samples.add(f"cpu {size}", (worker.cpu_seconds - cpu) * 1000 / steps)
    samples.add(f"server {size}", (cpu_seconds(arena.server.pid) - server) * 1000 / steps)
    left = footprint(await histories_of(worker, handle))
    samples.add(f"early bytes {size}", left.early(left.bytes))
    samples.add(f"late bytes {size}", left.late(left.bytes))
    samples.add(f"early events {size}", left.early(left.events))
    samples.add(f"late events {size}", left.late(left.events))


async def growth(arena: Arena, extent: Extent) -> dict[str, Figures]:
    """How far one run gets, and what stops it. One candidate after the other, each with a worker of its own."""
    found: dict[str, Figures] = {}
    for candidate in arena.present:
        async with arena.attempt(candidate, (extent.growth_seconds + 120) * len(extent.growth_sizes)):
            figures: Figures = {}
            for size in extent.growth_sizes:
                figures |= await _grow(arena, candidate, extent.growth, size, extent.growth_seconds)
            found[candidate.name] = figures
    return found


async def _grow(arena: Arena, candidate: Candidate, steps: int, size: int, patience: float) -> Figures:
    worker = await arena.worker(candidate)
    try:
        handle = await worker.start(f"{steps} {size} 0")
        ended = await outcome(worker, handle, patience)
        left = footprint(await histories_of(worker, handle))
    finally:
        worker.stop()
    reached = steps if not ended.error else max(0, len(left.bytes) - 1)
    print(f"  {candidate.name}: {reached} steps of {size} bytes in {ended.seconds:.0f} s {ended.error}", flush=True)
    return {
        f"steps {size}": reached,
        f"seconds {size}": ended.seconds,
        f"error {size}": ended.error,
        f"history MB {size}": left.total / 1e6,
        f"executions {size}": left.executions,
        f"largest MB {size}": left.largest / 1e6,
        f"early bytes {size}": left.early(left.bytes[40:60]),
        f"late bytes {size}": left.late(left.bytes, 20),
    }


async def throughput(arena: Arena, extent: Extent) -> dict[str, Figures]:
    """Runs per second when so many are started at once."""
    await warm_up(arena)

    async def one(arena: Arena, worker: PeerWorker, samples: Samples) -> None:
        cpu, began = worker.cpu_seconds, time.perf_counter()

        async def whole() -> None:
            await (await worker.start("5 4096 0")).result()

        await asyncio.gather(*(whole() for _ in range(extent.batch)))
        samples.add("runs/s", extent.batch / (time.perf_counter() - began))
        samples.add("cpu ms/run", (worker.cpu_seconds - cpu) * 1000 / extent.batch)

    return await in_turn(arena, extent.batches, 180, one)


async def memory(arena: Arena, extent: Extent) -> dict[str, Figures]:
    """Growth of the worker's resident memory per run that waits, each with a result of 20 KB in its conversation.

    The workers are filled one after the other. Then all wait, for what a worker may do about runs that wait; then some
    runs are answered.
    """
    waiting: dict[str, list[Handle]] = {}
    before: dict[str, int] = {}
    for candidate in arena.present:
        async with arena.attempt(candidate, 120 + extent.waiting):
            worker = arena.workers[candidate.name] = await arena.worker(candidate)
            for _ in range(5):  # one by one: what many at once leave behind for a while would count as the beginning
                await _finished(worker)
            before[candidate.name] = worker.resident_bytes
            waiting[candidate.name] = await _let_wait(worker, extent.waiting)
    await asyncio.sleep(extent.settling)
    grown = {one.name: arena.workers[one.name].resident_bytes - before[one.name] for one in arena.present}

    async def one(arena: Arena, worker: PeerWorker, samples: Samples) -> None:
        samples.add("ms", await _answer(worker, waiting[worker.candidate.name].pop()))

    answered = await in_turn(arena, min(extent.answers, extent.waiting), 60, one)
    return {
        name: {"kB/run": grown[name] / 1000 / extent.waiting, "before MB": before[name] / 1e6, **figures}
        for name, figures in answered.items()
    }


async def _finished(worker: PeerWorker) -> None:
    await (await worker.start(f"1 {LARGE} 0")).result()


async def _let_wait(worker: PeerWorker, count: int) -> list[Handle]:
    """So many runs that wait, started 20 at a time."""
    room = asyncio.Semaphore(20)

    async def one() -> Handle:
        async with room:
            handle = await worker.start(f"1 {LARGE} 1")
            await suspended(worker, handle)
            return handle

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def resume(arena: Arena, extent: Extent) -> dict[str, Figures]:
    """Milliseconds from sending the answer to the start of the tool it was for, by this machine's clock."""
    await warm_up(arena)

    async def one(arena: Arena, worker: PeerWorker, samples: Samples) -> None:
        handle = await worker.start(f"1 {LARGE} 1")
        await suspended(worker, handle)
        await asyncio.sleep(0.5)
        samples.add("ms", await _answer(worker, handle))

    return await in_turn(arena, extent.answers, 60, one)


async def _answer(worker: PeerWorker, handle: Handle) -> float:
    """Milliseconds from sending to the tool's start."""
    sent = time.time()
    await worker.approve(handle)
    await handle.result()
    return (await _tool_started(worker, handle, sent) - sent) * 1000


async def _tool_started(worker: PeerWorker, handle: Handle, after: float) -> float:
    for history in await histories_of(worker, handle):
        for event in history.events:
            if event.HasField("activity_task_started_event_attributes") and _seconds(event) >= after:
                return _seconds(event)
    raise Broken("no activity was started after the answer")


def _seconds(event: HistoryEvent) -> float:
    return event.event_time.ToNanoseconds() / 1e9


async def replay(arena: Arena, extent: Extent) -> dict[str, Figures]:
    """Seconds to replay a run, and those of a bare workflow with as many events."""
    return await replays.measure(arena, extent.replayed)


Row: TypeAlias = Callable[[Arena, Extent], Awaitable[dict[str, Figures]]]
ROWS: dict[str, Row] = {
    "steps": steps,
    "throughput": throughput,
    "resume": resume,
    "memory": memory,
    "replay": replay,
    "growth": growth,
}
