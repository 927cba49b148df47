"""What is worked out of a list that grows at its end: from step to step only what is new is looked at.

A run's conversation is such a list. What is kept here is no state: it lives while the run is in memory, and what is
worked out anew after a restart is the same. Outside a run nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

RECENT = 4
"""Lists that are remembered per function: hooks of one run may see different ones."""

MANY = 100
"""Keys that are remembered per run."""

_kept: ContextVar[dict[object, list[tuple[tuple[Any, ...], Any]]] | None] = ContextVar("outlast_growing", default=None)


def keep_growing() -> None:
    """Begin to remember, with nothing, in this task and those that it starts."""
    _kept.set({})


def grown(key: object, items: Sequence[T], start: R, extend: Callable[[R, Sequence[T]], R]) -> R:
    """``extend(start, items)``, for a function that may as well be given the items in several portions.

    Args:
        key: What tells the function, and all else that its value depends on, from others of the same run.
        items: Frozen values; compared by identity first, which makes a long list cheap.
        extend: Pure. What it raises is raised, and nothing is remembered of it.
    """
    kept = _kept.get()
    if kept is None:
        return extend(start, items)
    now = tuple(items)
    recent = kept.setdefault(key, [])
    index = next((i for i, (before, _) in enumerate(recent) if now[: len(before)] == before), None)
    if index is None:
        value = extend(start, now)
    else:
        before, value = recent.pop(index)
        if len(before) < len(now):
            value = extend(value, now[len(before) :])
    recent.insert(0, (now, value))
    del recent[RECENT:]
    if len(kept) > MANY:
        del kept[next(iter(kept))]
    return value
