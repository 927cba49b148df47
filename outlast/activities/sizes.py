"""How large what an activity gives may be. Beyond the server's limits it would be refused, and the activity repeated.

Without storage all of a step's results must also fit into one history, of which the server keeps 50 MB at most.
"""

from __future__ import annotations

from temporalio import activity

from outlast.limits import MAX_INLINE_BYTES

MAX_PROGRESS_BYTES = 64_000
"""Details of one heartbeat."""

_STORED = 30_000_000
_INLINE = 1_000_000
_INLINE_STEP = 30_000_000
_INLINE_LOCAL = 100_000
_INLINE_EFFECT = 250_000


def has_storage() -> bool:
    """Whether this worker keeps large payloads in external storage."""
    return activity.client().data_converter.external_storage is not None


def max_result_bytes(calls: int) -> int:
    """For a tool's result, in a step of so many calls."""
    if has_storage():
        return _STORED
    return min(_INLINE_LOCAL if activity.info().is_local else _INLINE, _INLINE_STEP // max(calls, 1))


def max_effect_bytes() -> int:
    """For the result of a side effect."""
    return _STORED if has_storage() else _INLINE_EFFECT


def max_answer_bytes() -> int:
    """For a model's answer."""
    return _STORED if has_storage() else MAX_INLINE_BYTES


def max_details_bytes() -> int:
    """For what a failure carries beside its message: the arguments of a question to a person."""
    return _STORED if has_storage() else _INLINE


def too_large(what: str, size: int) -> str:
    """A sentence that says so, and the way out."""
    if has_storage():
        return f"{what} has {size:,} bytes, more than the {_STORED:,} that are kept"
    return (
        f"{what} has {size:,} bytes, more than Temporal carries; "
        "configure storage (OUTLAST_STORAGE=dir:///path) on the workers and clients"
    )
