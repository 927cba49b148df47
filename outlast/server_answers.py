"""What the Temporal server answers, in words that say what to do."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from temporalio.service import RPCError, RPCStatusCode

from outlast.errors import NoAnswer, OutlastError, RunNotFound, clean_text
from outlast.unreadable import is_tombstone

T = TypeVar("T")

BETWEEN_EXECUTIONS = (
    RPCStatusCode.ABORTED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.UNKNOWN,
)
"""What an update may meet while its run continues as new, or while a server restarts."""


_NO_ANSWER = (
    RPCStatusCode.CANCELLED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.UNKNOWN,  # a connection that broke off
)


async def told(call: Awaitable[T], run_id: str) -> T:
    """The call's result; the server's errors in words that say what to do.

    Raises:
        RunNotFound, NoAnswer, OutlastError: By the server's status.
    """
    try:
        return await call
    except RPCError as error:
        raise in_words(error, run_id) from None


def readable(value: T, run_id: str) -> T:
    """The value, unless it stands for one that this process cannot read.

    Raises:
        OutlastError: It does; the message says why.
    """
    if is_tombstone(value):
        raise OutlastError(f"run {run_id!r}: what it says cannot be read here: {value['reason']}")
    return value


def is_full(error: RPCError) -> bool:
    """Whether an execution has had as many updates as the server allows; the next one takes more."""
    return "total number of distinct updates" in error.message


def in_words(error: RPCError, run_id: str) -> OutlastError:
    """The server's error as one that says what to do."""
    if error.status == RPCStatusCode.NOT_FOUND:
        return RunNotFound(f"no open run {run_id!r}: {error.message}. `outlast runs` lists them")
    if is_full(error):
        return OutlastError(
            f"run {run_id!r} can be told nothing more for now: {error.message}. It takes messages again once the call "
            "that is under way has ended, and it goes on in a fresh execution"
        )
    if error.status in _NO_ANSWER:
        return NoAnswer(f"the server did not answer for run {run_id!r}: {error.message}. Is it running?")
    if error.status in (RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.RESOURCE_EXHAUSTED):
        size = "size" in error.message or "larger" in error.message
        advice = ". Configure storage (OUTLAST_STORAGE) on clients and workers" if size else ""
        return OutlastError(f"the server refused this for run {clean_text(run_id, 80)!r}: {error.message}{advice}")
    return OutlastError(f"run {run_id!r}: {error.message}")
