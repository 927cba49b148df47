"""Replaying: each candidate in its own environment, in turn with a bare workflow that has as many events."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

from temporalio.api.history.v1 import History
from temporalio.client import WorkflowHistory

from benchmarks.comparison.arena import Arena, command, environment
from benchmarks.comparison.candidates import BARE, Candidate
from benchmarks.comparison.environments import ROOT
from benchmarks.comparison.histories import histories_of
from benchmarks.comparison.waiting import outcome

SIZE = 16
SECONDS = 300.0
ROUNDS = 2
BARE_EVENTS_PER_STEP = 12.0
TOLERANCE = 0.03
"""A yardstick that was recorded serves for another number of events if it is as near as this."""


async def measure(arena: Arena, steps: int) -> dict[str, dict[str, float | str]]:
    """Seconds of a candidate's whole run, of its longest execution's share, and of its yardstick."""
    found: dict[str, dict[str, float | str]] = {}
    yardsticks: dict[int, list[Path]] = {}
    for candidate in arena.present:
        async with arena.attempt(candidate, 4 * SECONDS):
            events, files, error = await _record(arena, candidate, steps)
            near = next((count for count in yardsticks if abs(count - events) <= TOLERANCE * events), None)
            if near is None:
                near, bare, _ = (
                    (events, files, "")
                    if candidate == BARE
                    else await _record(arena, BARE, round(events / BARE_EVENTS_PER_STEP))
                )
                yardsticks[near] = bare
            seconds, bare_seconds = await _in_turn(arena, candidate, files, yardsticks[near])
            found[candidate.name] = {
                "seconds": seconds,
                "bare seconds": bare_seconds,
                "events": events,
                "executions": len(files),
                "error": error,
            }
            print(f"  {candidate.name}: {seconds:.2f} s for {events} events, bare {bare_seconds:.2f} s", flush=True)
    return found


async def _record(arena: Arena, candidate: Candidate, steps: int) -> tuple[int, list[Path], str]:
    worker = await arena.worker(candidate)
    try:
        handle = await worker.start(f"{steps} {SIZE} 0")
        ended = await outcome(worker, handle, SECONDS)
        histories = await histories_of(worker, handle)
    finally:
        worker.stop()
    files = [_write(arena.folder, history, number) for number, history in enumerate(histories)]
    return sum(len(history.events) for history in histories), files, ended.error


def _write(folder: Path, history: WorkflowHistory, number: int) -> Path:
    file = folder / f"{history.workflow_id}.{number}"
    file.write_bytes(History(events=history.events).SerializeToString())
    return file


async def _in_turn(
    arena: Arena, candidate: Candidate, files: Sequence[Path], yardstick: Sequence[Path]
) -> tuple[float, float]:
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(ROUNDS):
        ours += await _replay(arena, candidate, files)
        bare += await _replay(arena, BARE, yardstick)
    return statistics.median(ours), statistics.median(bare)


async def _replay(arena: Arena, candidate: Candidate, files: Sequence[Path]) -> list[float]:
    """Raises RuntimeError with the process's last line if the history does not replay."""
    storage = f"dir://{arena.folder / 'storage'}" if candidate.storage else "-"
    done = await asyncio.to_thread(
        subprocess.run,
        command(candidate, "replay", storage, *map(str, files)),
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=SECONDS,
    )
    if done.returncode != 0:
        raise RuntimeError(f"does not replay: {done.stderr.strip().splitlines()[-1][:300]}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds
