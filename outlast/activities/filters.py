"""Filters at the edges, applied inside activities: with code of the user's own in a thread, for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from outlast.errors import HookFailure
from outlast.middleware.edge_filter import Edges
from outlast.tools import in_thread

T = TypeVar("T")
LIMIT_SECONDS = 30.0


async def filtered(edges: Edges, apply: Callable[[], T], limit_seconds: float | None = None) -> T:
    """What ``apply`` gives: here and now, or, where it could take long, from a thread (AC-87).

    Raises:
        HookFailure: It took longer than the limit. Nothing that was not looked through leaves the activity.
        ToolRejection: A filter refuses the value.
    """
    if not edges.is_slow:
        return apply()
    try:
        limit_seconds = LIMIT_SECONDS if limit_seconds is None else limit_seconds
        found: T = await asyncio.wait_for(in_thread(apply), limit_seconds)
    except TimeoutError:
        raise HookFailure(
            "a detector of pii_redact", f"it took longer than {limit_seconds:g} seconds for one text; make it quicker"
        ) from None
    return found
