"""AC-87: filters with code of the user's own have a thread and a time limit inside activities."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from outlast.activities.filters import filtered
from outlast.errors import HookFailure
from outlast.messages import user
from outlast.middleware import pii_redact
from outlast.middleware.edge_filter import Edges


def where(text: str) -> list[tuple[int, int]]:
    SEEN.append(threading.current_thread())
    return []


def hang(text: str) -> list[tuple[int, int]]:
    time.sleep(0.3)
    return []


SEEN: list[threading.Thread] = []


async def test_a_detector_of_ones_own_runs_in_a_thread_and_a_built_in_one_does_not_need_it() -> None:
    SEEN.clear()
    for own in (pii_redact("x", detector=where), pii_redact("x", detector=r"EMP-\d+")):
        edges = Edges.of([own, pii_redact("email")])
        assert edges.is_slow
        assert await filtered(edges, partial(edges.sent, [user("hi")])) == (user("hi"),)
    assert SEEN
    assert threading.current_thread() not in SEEN
    assert not Edges.of([pii_redact("email"), pii_redact("ip", at_edges=True)]).is_slow


async def test_one_that_takes_too_long_is_given_up_and_named() -> None:
    edges = Edges.of([pii_redact("x", detector=hang)])
    began = time.monotonic()
    with pytest.raises(HookFailure, match=r"a detector of pii_redact: it took longer than 0\.05 seconds"):
        await filtered(edges, lambda: edges.sent([user("hi")]), limit_seconds=0.05)
    assert time.monotonic() - began < 0.25
