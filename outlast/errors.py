"""Every exception of the framework, under one root.

    OutlastError
    ├── AgentError            ends the run on purpose: a code, a sentence, a verdict
    ├── HitlInterrupt         suspends one tool call until somebody decides
    ├── ToolRejection         refuses one tool call; its text is what the model reads
    ├── ToolError             a tool's body raised; becomes an error result unless a hook handles it
    ├── ModelError            a provider call failed; carries the verdict and the server's wait hint
    │   ├── RateLimited, Overloaded, ServerFault, ConnectionFault, ModelTimeout     (retryable)
    │   └── AuthenticationFailed, InvalidRequest, ContextOverflow, QuotaExhausted,
    │       ContentBlocked, UnknownModel, MalformedResponse                         (not retryable)
    ├── HookFailure           a hook raised something nobody expected; the run parks
    ├── RunNotFound, RunExists, NoAnswer, DecisionRefused, UnknownAgent   (what a client is told)
    └── AgentRunFailed, AgentRunPaused                            (how ``result()`` ends early)

Tool failures are values (error results), not exceptions, by the time the model sees them.
A *verdict* says whether an error may be retried: True, False, or None where nobody stamped it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from outlast.state import RunResult
    from outlast.usage import Usage

E = TypeVar("E", bound=object)

_VERDICT = "__outlast_retryable__"
_DECISIONS = ("approve", "edit", "reject")
MAX_WAIT_SECONDS = 100 * 365 * 86_400


class OutlastError(Exception):
    """Root of every exception that outlast raises."""


class AgentError(OutlastError):
    """Ends the run with a code a program can test and a sentence a person can act on.

    Always passes through retry and fallback middleware untouched (AC-34).

    Args:
        code: One of ``BUDGET_EXCEEDED``, ``POLICY_DENIED``, ``HITL_DECISION``, ``PII_BLOCKED``,
            ``MODEL_ERROR``, ``TOOL_ERROR``, ``MAX_STEPS``, ``OUTPUT_INVALID``, ``ABORTED``,
            ``CANCELLED``, ``HOOK_ERROR``, ``STATE_TOO_LARGE``, or a code of your own.
        message: What happened, where, and what to do next.
        retryable: The verdict that :func:`get_retryable` reports.
    """

    def __init__(self, code: str, message: str, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def hitl_key(tool: str, args: Mapping[str, Any]) -> str:
    """The id of an interrupt: the tool's name and its arguments as JSON, in the order given.

    ``hitl_key("publish", {"id": 1}) == 'publish:{"id": 1}'``. Pinned by the seed (AC-61).

    Raises:
        TypeError: A key of ``args`` is not a JSON key (a tuple, say).
    """
    return f"{tool}:{json.dumps(args, sort_keys=False, default=str)}"


class HitlInterrupt(OutlastError):
    """Raised by a hook or by a tool: this call waits for a human decision.

    Python unbinds the name of ``except HitlInterrupt as error:`` when the block ends; copy it to
    another name if you need it afterwards (AC-73).

    Raised by a hook with another tool or other arguments than the call has, it edits the call: what the person is
    shown is what runs (AC-69).

    Attributes:
        interrupt_id: ``hitl_key(tool, args)``.
        tool, args: What would run.
        allowed_decisions: Any of ``approve``, ``edit``, ``reject``.
        description: A line for the person who decides; the tool's arguments are always shown too.
        timeout_seconds: How long to wait for an answer; None is for ever.
        on_timeout: The decision taken when nobody answered in time; fails closed by default.
        reminder_seconds: When to emit a reminder event; None for none.

    Raises:
        TypeError, ValueError: A decision that does not exist, or a time that is none: nobody could ever answer.
    """

    def __init__(
        self,
        tool: str,
        args: Mapping[str, Any],
        *,
        allowed_decisions: Sequence[str] = ("approve", "edit", "reject"),
        description: str = "",
        timeout_seconds: float | None = None,
        on_timeout: str = "reject",
        reminder_seconds: float | None = None,
    ) -> None:
        for name, seconds in (("timeout_seconds", timeout_seconds), ("reminder_seconds", reminder_seconds)):
            if seconds is not None and not 0 <= seconds <= MAX_WAIT_SECONDS:
                raise ValueError(f"{name} must be 0 to {MAX_WAIT_SECONDS:,} seconds, not {seconds!r}")
        unknown = [item for item in allowed_decisions if item not in _DECISIONS]
        if unknown or not allowed_decisions or on_timeout not in ("approve", "reject"):
            raise ValueError(
                f"{tool}: allowed_decisions are some of {', '.join(_DECISIONS)}, not {list(allowed_decisions)!r}; "
                f"on_timeout is approve or reject, not {on_timeout!r}"
            )
        self.interrupt_id = hitl_key(tool, args)
        super().__init__(f"{tool} waits for a decision")
        self.tool = tool
        self._args = dict(args)
        self.allowed_decisions = tuple(allowed_decisions)
        self.description = description
        self.timeout_seconds = timeout_seconds
        self.on_timeout = on_timeout
        self.reminder_seconds = reminder_seconds

    @property
    def args(self) -> dict[str, Any]:  # type: ignore[override] # the seed's name for the call's arguments (AC-60)
        """The call's arguments, not the exception's."""
        return self._args


class ToolRejection(OutlastError):
    """Raised by a hook or a tool to refuse the call; the message goes to the model as an error result."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ToolError(OutlastError):
    """A tool's body raised. Seen by ``around_tool`` hooks; unhandled, it becomes an error result.

    Attributes:
        tool: The tool's name.
        error_classes: Qualified names of the classes of what the body raised; see :func:`matches`.
        outcome_unknown: True when a worker was lost while a non-idempotent tool ran: the effect
            may or may not have happened.
    """

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        error_classes: Sequence[str] = (),
        outcome_unknown: bool = False,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.tool = tool
        self.error_classes = tuple(error_classes)
        self.outcome_unknown = outcome_unknown
        if retryable is not None:
            stamp_retryable(self, retryable)


class ModelError(OutlastError):
    """A call to a model provider failed. Subclasses name the kind; each kind has a default verdict.

    Attributes:
        provider: ``openai``, ``anthropic``, ``gemini``, ...
        status: The HTTP status, where there was one.
        wait_seconds: How long the server asked us to wait, where it said so (a floor for a retry).
        error_class: The provider's own name for the error (``rate_limit_error``), or the name of
            the Python class that was raised.
        error_classes: Qualified names of the classes of a foreign exception; see :func:`matches`.
        usage: What the failed call has used up all the same, where the provider said so: an answer that broke off, or
            that nobody can read. It counts in the run's usage (AC-41).
    """

    default_verdict: ClassVar[bool | None] = None

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        wait_seconds: float | None = None,
        error_class: str = "",
        error_classes: Sequence[str] = (),
        retryable: bool | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.error_classes = tuple(error_classes)
        self.usage = usage
        self.provider = provider
        self.status = status
        self.wait_seconds = wait_seconds
        self.error_class = error_class or type(self).__name__
        verdict = self.default_verdict if retryable is None else retryable
        if verdict is not None:
            stamp_retryable(self, verdict)


class RateLimited(ModelError):
    """429: too many requests or tokens for now."""

    default_verdict = True


class Overloaded(ModelError):
    """The provider has no capacity at the moment (503, 529, a model that is still loading)."""

    default_verdict = True


class ServerFault(ModelError):
    """5xx, or a stream that broke off in the middle."""

    default_verdict = True


class ConnectionFault(ModelError):
    """No connection to the provider: refused, reset, name not found."""

    default_verdict = True


class ModelTimeout(ModelError):
    """The provider did not answer in time (408, 504, or our own time-out)."""

    default_verdict = True


class AuthenticationFailed(ModelError):
    """401 or 403, or no API key in the worker's environment."""

    default_verdict = False


class InvalidRequest(ModelError):
    """The request is wrong and will be wrong again (400, 413, 422), or failed our own check."""

    default_verdict = False


class ContextOverflow(InvalidRequest):
    """The conversation is longer than the model's context window."""


class QuotaExhausted(ModelError):
    """The account has no credit left; waiting does not help (``insufficient_quota``)."""

    default_verdict = False


class ContentBlocked(ModelError):
    """The provider refused to read or to answer this content."""

    default_verdict = False


class UnknownModel(ModelError):
    """404, or a model string that outlast cannot resolve."""

    default_verdict = False


class MalformedResponse(ModelError):
    """The provider answered with something that is not its own format."""

    default_verdict = None


class HookFailure(OutlastError):
    """Something unexpected came out of a hook (or of the worker's code); the run parks with this.

    Attributes:
        where: The hook and its middleware, or the command: ``before_tool of 'audit'``.
        error: ``ClassName: message`` of what was raised, sanitised.
        traceback: The traceback's text, sanitised and cut at 4 kB.
    """

    def __init__(self, where: str, error: str, traceback: str = "") -> None:
        super().__init__(f"{where}: {error}")
        self.where = where
        self.error = error
        self.traceback = traceback


class RunNotFound(OutlastError):
    """No run has this id."""


class UnknownAgent(OutlastError):
    """The worker does not know an agent of this name."""


class RunExists(OutlastError):
    """A run of this id was started before; ids are never used twice."""


class NoAnswer(OutlastError):
    """The server or the run's workers did not answer in time; nothing was lost, try again."""


class DecisionRefused(OutlastError):
    """A decision was not accepted: unknown interrupt, not allowed, or already decided (AC-75)."""


class AgentRunFailed(OutlastError):
    """``result()`` of a run that ended without an answer.

    Attributes:
        code, message: As in :class:`AgentError`.
        result: The :class:`~outlast.state.RunResult` so far, where it could be had.
    """

    def __init__(self, code: str, message: str, result: RunResult | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.result = result


class AgentRunPaused(OutlastError):
    """``result()`` of a run that parked. Fix the cause, ``await run.resume()``, await the result again.

    Attributes:
        where: The hook or the call that failed.
        error: What it raised.
        traceback: The traceback's text, where there is one.
    """

    def __init__(self, run_id: str, where: str, error: str, traceback: str = "") -> None:
        super().__init__(
            f"run {run_id!r} is paused at {where}: {error}. "
            f"When the cause is gone: `outlast resume {run_id}`, or run.resume(), and await the result again."
        )
        self.run_id = run_id
        self.where = where
        self.error = error
        self.traceback = traceback


def stamp_retryable(error: E, retryable: bool) -> E:
    """Mark any exception as retryable or fatal; its type, args and text stay as they are (AC-25).

    Returns the same object. What cannot carry a mark (not an exception, slotted) is returned untouched.
    """
    if isinstance(error, BaseException):
        try:
            setattr(error, _VERDICT, bool(retryable))
        except BaseException:  # a class may forbid attributes in any way it likes
            return error
    return error


def get_retryable(error: object) -> bool | None:
    """The verdict on an error: an explicit stamp first, then an AgentError's flag, else None (AC-26)."""
    try:
        verdict = getattr(error, _VERDICT, None)
    except BaseException:  # an attribute may be looked up in any way its class likes
        verdict = None
    if isinstance(verdict, bool):
        return verdict
    return error.retryable if isinstance(error, AgentError) else None


def is_control(error: BaseException) -> bool:
    """True for what retry, fallback and ``on_failure`` must never touch (AC-34, AC-36)."""
    control = AgentError | HitlInterrupt | ToolRejection | HookFailure
    return isinstance(error, control) or not isinstance(error, Exception)


MODEL_ERRORS: Mapping[str, type[ModelError]] = {
    kind.__name__: kind
    for kind in (
        ModelError,
        RateLimited,
        Overloaded,
        ServerFault,
        ConnectionFault,
        ModelTimeout,
        AuthenticationFailed,
        InvalidRequest,
        ContextOverflow,
        QuotaExhausted,
        ContentBlocked,
        UnknownModel,
        MalformedResponse,
    )
}
"""Names to classes, for rebuilding an error on the other side of an activity."""


def clean_text(value: object, limit: int = 4000) -> str:
    """Text that any payload can carry: valid UTF-8, no NUL, at most ``limit`` characters. Never raises.

    A lone surrogate in an exception's message makes Temporal re-run the activity for ever.
    """
    text = value if isinstance(value, str) else _text_of(value)
    cut = text if len(text) <= limit else f"{text[: limit - 40]}... ({len(text)} characters)"
    return cut.encode("utf-8", "replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _text_of(value: object) -> str:
    try:
        return str(value)
    except BaseException:  # its __str__ may raise whatever it likes
        return "(its text could not be read)"


def class_names(error: BaseException) -> tuple[str, ...]:
    """The qualified names of an error's classes, nearest first: what survives a trip between processes."""
    kinds = type(error).__mro__
    return tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if kind not in (object, BaseException))


def matches(error: BaseException, kinds: Sequence[type[BaseException]]) -> bool:
    """Whether an error is, or was before it crossed an activity, of one of these classes."""
    if isinstance(error, tuple(kinds)):
        return True
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    return not names.isdisjoint(getattr(error, "error_classes", ()))
