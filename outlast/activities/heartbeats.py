"""Automatic heartbeats: without them a cancellation never arrives and a lost worker is noticed only at the time-out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from temporalio import activity


@asynccontextmanager
async def heartbeats(details: Callable[[], tuple[Any, ...]] = tuple) -> AsyncIterator[None]:
    """Heartbeat in the background, four times per heartbeat time-out, with whatever ``details`` gives at the time."""
    timeout = activity.info().heartbeat_timeout
    if timeout is None or activity.info().is_local:
        yield
        return

    async def beat() -> None:
        while True:
            await asyncio.sleep(timeout.total_seconds() / 4)  # first: a quick call costs the server nothing
            activity.heartbeat(*details())

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
