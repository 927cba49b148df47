"""A worker lets go of runs that wait for people; a decision brings one back, with a replay of its newest execution.

A cached run takes some 130 to 200 KB of a worker's memory, whether it works or waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc

from temporalio.worker import Worker

from outlast.workflows.idle import idle_executions

_MANY = 50
"""After so many the memory is given back to the system, which takes some milliseconds."""


class letting_go_of_idle_runs:  # noqa: N801 - read as a statement
    """While a worker runs in this block, runs that have waited for about ``seconds`` leave its cache."""

    def __init__(self, worker: Worker, seconds: float) -> None:
        self._worker = worker
        self._seconds = seconds
        self._seen: dict[str, int] = {}
        self._gone = 0

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def __aexit__(self, *_error: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._seconds / 3)
            self._look()
            if self._gone >= _MANY:
                self._gone = 0
                await asyncio.to_thread(_give_back_memory)

    def _look(self) -> None:
        """Let go of what has waited at three looks in a row."""
        self._seen = {run_id: self._seen.get(run_id, 0) + 1 for run_id in idle_executions(self._worker.task_queue)}
        core = getattr(self._worker, "_bridge_worker", None)  # the SDK has no public way
        for run_id, looks in self._seen.items():
            if looks >= 3 and core is not None:
                core.request_workflow_eviction(run_id)
                self._gone += 1


def _give_back_memory() -> None:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc keeps freed memory otherwise; other systems do not
        ctypes.CDLL("libc.so.6").malloc_trim(0)
