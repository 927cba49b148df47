"""Automatic heartbeats: without them a cancellation never arrives and a lost worker is noticed only at the time-out."""

from __future__ import annotations

import asyncio
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

    loop, every = asyncio.get_running_loop(), timeout.total_seconds() / 4
    due: list[asyncio.TimerHandle] = []

    def beat() -> None:
        activity.heartbeat(*details())
        due[:] = [loop.call_later(every, beat)]

    due.append(loop.call_later(every, beat))  # not at once: a quick call costs the server no heartbeat
    try:
        yield
    finally:
        due[0].cancel()
