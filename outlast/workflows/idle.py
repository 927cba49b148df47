"""Which executions of this process wait for somebody, with nothing under way: its workers need not keep them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio import workflow

Execution = tuple[str, str]
"""Task queue and Temporal run id."""

_idle: dict[Execution, int] = {}


@contextmanager
def idle() -> Iterator[None]:
    """While an execution waits in this block. No command and no decision depends on it."""
    info = workflow.info()
    execution = (info.task_queue, info.run_id)
    _idle[execution] = _idle.get(execution, 0) + 1
    try:
        yield
    finally:  # also when the worker lets go of it
        _idle[execution] -= 1
        if not _idle[execution]:
            del _idle[execution]


def idle_executions(task_queue: str) -> list[str]:
    """Temporal run ids of those that wait now; callable from any thread."""
    return [run_id for queue, run_id in list(_idle) if queue == task_queue]
