"""Exceptions across the activity boundary: out as Temporal failures that carry the verdict, back as our own classes.

Nothing here is retried by Temporal: a failure that left an activity is the middleware's to judge. Only a lost
worker or a time-out is Temporal's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, is_cancelled_exception

from outlast.activities.sizes import max_details_bytes, too_large
from outlast.errors import (
    MODEL_ERRORS,
    AgentError,
    HitlInterrupt,
    HookFailure,
    ModelError,
    ModelTimeout,
    ToolError,
    ToolRejection,
    class_names,
    clean_text,
    get_retryable,
)
from outlast.middleware.compose import describe
from outlast.middleware.edge_filter import NO_EDGES, Edges
from outlast.state import check_json
from outlast.unreadable import is_tombstone
from outlast.usage import Usage, spent_by


class FailureDetails(BaseModel):
    """What travels beside a failure's message. Never a request, an argument or a key."""

    model_config = ConfigDict(extra="ignore")

    kind: str
    classes: tuple[str, ...] = ()
    retryable: bool | None = None
    provider: str = ""
    status: int | None = None
    wait_seconds: float | None = None
    error_class: str = ""
    code: str = ""
    interrupt: dict[str, Any] | None = None
    usage: Usage | None = None
    ours: bool = Field(default=True, exclude=True)


_UNREAD = "Failed decoding arguments"
"""Temporal's words for a call whose body was never started."""


def raise_model_failure(error: BaseException, edges: Edges = NO_EDGES) -> NoReturn:
    """Leave a model activity with this error; ``edges`` filter its text."""
    _leave(error, _model_details, edges, ModelError)


def raise_tool_failure(error: BaseException, edges: Edges = NO_EDGES) -> NoReturn:
    """Leave a tool activity with this error; ``edges`` filter its text."""
    _leave(error, _tool_details, edges, ToolError)


def _leave(
    error: BaseException,
    details_of: Callable[[BaseException, Edges], FailureDetails],
    edges: Edges,
    own: type[Exception],
) -> NoReturn:
    try:
        details, text = details_of(error, edges), str(edges.output(_text(error, own)))
        carried = details.model_dump(mode="json", exclude_none=True)
        check_json(carried, "details")
        if (size := len(to_json(carried))) > max_details_bytes():
            raise ValueError(too_large("what it carries", size))
    except Exception as fault:  # the error's own attributes may raise, or be what no JSON holds
        text = f"{type(error).__name__} (it could not be carried from the worker: {describe(fault, 500)})"
        details, carried = FailureDetails(kind="Exception"), {"kind": "Exception"}
    _fail(text, details.kind, carried)


def _fail(text: str, kind: str, details: Mapping[str, Any]) -> NoReturn:
    raise ApplicationError(clean_text(text), details, type=kind, non_retryable=True) from None


def _model_details(error: BaseException, _edges: Edges) -> FailureDetails:
    if isinstance(error, ToolRejection):  # of an answer that was withheld; it has been paid for
        return FailureDetails(kind="ToolRejection", usage=spent_by(error))
    if isinstance(error, ModelError):
        return FailureDetails(
            kind=type(error).__name__ if type(error).__name__ in MODEL_ERRORS else "ModelError",
            classes=class_names(error),
            retryable=get_retryable(error),
            provider=error.provider,
            status=error.status,
            wait_seconds=error.wait_seconds,
            error_class=error.error_class,
            usage=spent_by(error),
        )
    return _foreign(error)


def _tool_details(error: BaseException, edges: Edges) -> FailureDetails:
    if isinstance(error, HitlInterrupt):
        return FailureDetails(kind="HitlInterrupt", interrupt=_interrupt(error, edges))
    if isinstance(error, ToolRejection):
        return FailureDetails(kind="ToolRejection")
    details = _foreign(error)
    if isinstance(error, ToolError) and error.error_classes:
        details = details.model_copy(update={"classes": error.error_classes})
    return details


def _interrupt(error: HitlInterrupt, edges: Edges) -> dict[str, Any]:
    return {
        "tool": error.tool,
        "args": edges.args(error.args),
        "allowed_decisions": list(error.allowed_decisions),
        "description": str(edges.output(error.description)),
        "timeout_seconds": error.timeout_seconds,
        "on_timeout": error.on_timeout,
        "reminder_seconds": error.reminder_seconds,
    }


def _text(error: BaseException, own: type[Exception]) -> str:
    """Nearly the whole text: it is cut after it was filtered, lest a part of what a filter looks for is left."""
    if isinstance(error, AgentError | ToolRejection):
        return clean_text(error.message, 100_000)  # an AgentError's code travels beside it
    if isinstance(error, HookFailure):
        return error.error
    return str(error) if isinstance(error, own) else describe(error, 100_000)


def _foreign(error: BaseException) -> FailureDetails:
    if isinstance(error, AgentError):
        return FailureDetails(kind="AgentError", code=clean_text(error.code, 100), retryable=bool(error.retryable))
    if isinstance(error, HookFailure):
        return FailureDetails(kind="Setup", error_class=clean_text(error.where, 500))
    return FailureDetails(
        kind="Exception", classes=class_names(error), retryable=get_retryable(error), error_class=type(error).__name__
    )


def model_failure(error: ActivityError) -> BaseException:
    """What a failed model activity means to workflow code."""
    failure = _back(error, _model_error, lambda text: ModelTimeout(text, retryable=False))
    if isinstance(error.cause, ApplicationError) and (usage := _details(error.cause).usage) is not None:
        vars(failure)["usage"] = usage
    return failure


def tool_failure(error: ActivityError, tool: str, idempotent: bool) -> BaseException:
    """What a failed tool activity means; after a lost worker a non-idempotent tool may or may not have run."""

    def lost(text: str) -> BaseException:
        if idempotent:
            return ToolError(f"{tool} did not finish: {text}", tool=tool, retryable=False)
        return ToolError(
            f"{tool} may or may not have happened: it was started, no answer came from its worker ({text}), and it is "
            "declared not to be repeatable. Do not call it again unless somebody has checked.",
            tool=tool,
            outcome_unknown=True,
            retryable=False,
        )

    def back(text: str, details: FailureDetails) -> BaseException:
        if not idempotent and not details.ours and text != _UNREAD:  # its result could not be stored, for one
            return lost(f"its answer could not be carried: {clean_text(text, 300)}")
        return ToolError(text, tool=tool, error_classes=details.classes, retryable=details.retryable)

    return _back(error, back, lost)


def effect_failure(error: ActivityError, function: str) -> BaseException:
    """What a failed side effect means to the hook that called it."""
    return tool_failure(error, function, idempotent=True)


def _back(
    error: ActivityError,
    foreign: Callable[[str, FailureDetails], BaseException],
    lost: Callable[[str], BaseException],
) -> BaseException:
    if is_cancelled_exception(error):
        return asyncio.CancelledError("the activity was cancelled")  # no hook may take it for a failure (AC-36)
    cause = error.cause
    if isinstance(cause, TimeoutError):
        return lost(f"no answer within its limits ({cause.type.name if cause.type else 'time-out'})")
    if not isinstance(cause, ApplicationError):
        return lost(describe(cause) if cause is not None else "the activity failed")
    if cause.type == "NotFoundError":
        text = f"a worker of its task queue does not have it: {clean_text(cause.message, 300)}"
        return HookFailure(f"activity {error.activity_type!r}", f"{text}; is another version of the code running?")
    if cause.type == "WorkerShutdown":
        return lost("its worker was shut down while it ran")
    details = _details(cause)
    text = cause.message
    match details.kind:
        case "HitlInterrupt" if details.interrupt is not None:
            return HitlInterrupt(**details.interrupt)
        case "ToolRejection":
            return ToolRejection(text)
        case "AgentError":
            return AgentError(details.code or "TOOL_ERROR", text, bool(details.retryable))
        case "Setup":
            return HookFailure(details.error_class or "worker", text)
    return foreign(text, details)


def _details(cause: ApplicationError) -> FailureDetails:
    first: Any = next(iter(cause.details), None)
    if isinstance(first, Mapping) and "kind" in first:
        return FailureDetails.model_validate(first)
    return FailureDetails(kind="Exception", classes=(f"temporalio.{cause.type or 'ApplicationError'}",), ours=False)


def _model_error(text: str, details: FailureDetails) -> BaseException:
    kind = MODEL_ERRORS.get(details.kind, ModelError)
    return kind(
        text,
        provider=details.provider,
        status=details.status,
        wait_seconds=details.wait_seconds,
        error_class=details.error_class,
        error_classes=details.classes,
        retryable=details.retryable,
    )


def refuse_unreadable(*values: object) -> None:
    """Leave an activity whose arguments this worker cannot read; another worker may, so it is tried again.

    Raises:
        ApplicationError: A value stands in for a payload that was not to be had; the run parks in the end.
    """
    for value in values:
        if is_tombstone(value):
            reason = clean_text(str(value["reason"]), 500)
            details = FailureDetails(kind="Setup", error_class="a worker").model_dump(mode="json", exclude_none=True)
            raise ApplicationError(f"what the call needs cannot be read: {reason}", details, type="Setup")


def raise_setup_failure(where: str, message: str) -> NoReturn:
    """Leave an activity because this worker is not set up for it; the run parks with this sentence."""
    details = FailureDetails(kind="Setup", error_class=clean_text(where, 500))
    _fail(message, details.kind, details.model_dump(mode="json", exclude_none=True))
