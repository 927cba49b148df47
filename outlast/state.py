"""What survives a crash: :class:`RunState`, the one mutable value of a run, and what a finished run returns.

Everything here crosses continue-as-new. What is not here is gone after it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import Any, Literal, NoReturn, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic_core import from_json, to_json

from outlast.approvals import AuditRecord, Decision, PendingInterrupt
from outlast.archive import Archive, ArchivedPart
from outlast.events import Event, EventLog, PauseInfo
from outlast.messages import Json, Message, Value
from outlast.model import Completion
from outlast.tools import ToolCall, ToolResult
from outlast.usage import Usage

SCHEMA_VERSION = 1
KEPT_COMMAND_IDS = 2000
KEPT_AUDIT_RECORDS = 500
CARRIED_EVENTS, CARRIED_EVENT_BYTES = 100, 200_000
MAX_DEPTH, MAX_INT_BITS = 100, 10_000
"""What JSON values may be: nested so deep, and numbers so long, that every reader on their way takes them."""

RunStatus: TypeAlias = Literal["running", "suspended", "paused", "completed", "failed", "cancelled"]


class InvocationState(dict[str, Json]):
    """The per-run dict: JSON values only, checked when they are written (AC-15).

    A write of anything else raises ``TypeError`` naming the key. What is changed deep inside a value is checked when
    the hooks of its kind have run (:meth:`check`); :meth:`undo` goes back to the last check.
    """

    def __init__(self, values: Mapping[str, Json] | Iterable[tuple[str, Json]] = ()) -> None:
        super().__init__()
        self.update(values)
        self._checked = to_json([self])

    def __setitem__(self, key: str, value: Json) -> None:
        check_json({key: value}, "invocation_state")
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Json = None) -> Json:
        """As dict, checked."""
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *values: Any, **more: Json) -> None:  # noqa: ANN401 - dict's own signature
        """As dict, checked."""
        for key, value in dict(*values, **more).items():
            self[key] = value

    def __ior__(self, other: Any) -> InvocationState:  # type: ignore[override,misc] # noqa: ANN401 - dict's own signature
        self.update(other)
        return self

    def check(self) -> None:
        """Remember the values as they are now.

        Raises:
            TypeError: A value deep inside is not JSON; the message has the path. The dict goes back to the last check.
        """
        try:
            data = to_json([self], inf_nan_mode="null")  # as the whole state is written
            if from_json(data) == [self]:
                self._checked = data
                return
        except ValueError:
            pass
        try:
            check_json(dict(self), "invocation_state")
            raise TypeError("invocation_state: a value does not survive JSON unchanged")
        except TypeError:
            self.undo()
            raise

    def undo(self) -> None:
        """Back to the last check; the dict stays the same object."""
        [values] = from_json(self._checked)
        self.clear()
        super().update(values)


def check_json(value: object, path: str, depth: int = 0) -> None:
    """Raise TypeError, naming the place, unless the value survives JSON unchanged."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise TypeError(f"{path}: a number of {value.bit_length():,} bits; readers of JSON refuse it")
    elif isinstance(value, float) and math.isfinite(value):
        return
    elif depth > MAX_DEPTH:
        raise TypeError(f"{path[:200]}: nested more than {MAX_DEPTH} deep")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{path}: key {key!r:.80} is {type(key).__name__}; JSON keys are text")
            _check_text(key, f"{path}, a key")
            check_json(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_json(item, f"{path}[{index}]", depth + 1)
    else:
        _not_json(value, path)


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TypeError(
            f"{path}: character {error.start} is half of a pair (a lone surrogate); no JSON holds it"
        ) from None


def _not_json(value: object, path: str) -> NoReturn:
    kind = type(value).__name__
    advice = {"tuple": "use a list", "set": "use a sorted list", "datetime": "use its isoformat()"}.get(
        kind, "use None, bool, int, finite float, str, list or dict"
    )
    raise TypeError(f"{path} = {value!r:.80}: {kind} is not a JSON value; {advice}")


class CallState(BaseModel):
    """How far one call of the current batch has come.

    Attributes:
        call: What would run now, edits included.
        original: As the model asked.
        agreed: Per middleware name, the call (as text) that its ``before_tool`` last agreed to.
        decision: An answer that no hook has consumed yet.
        decided: The kind of the decision that let the call through.
        raised_by: Where the pending interrupt came from: a middleware's name, or ``""`` for the execution.
        attempts: How often the tool's body was started.
        executed: The body's result, kept so that a hook that fails after it never runs the tool again.
        lost: What is said of a body that may or may not have run; it is never run again.
        result: The call's final result before ``after_tool``; set means: do not execute.
        settled: ``after_tool`` has run.
    """

    model_config = ConfigDict(validate_assignment=False)

    call: ToolCall
    original: ToolCall
    agreed: dict[str, str] = Field(default_factory=dict)
    decision: Decision | None = None
    decided: str | None = None
    raised_by: str = ""
    attempts: int = 0
    executed: ToolResult | None = None
    lost: str = ""
    result: ToolResult | None = None
    settled: bool = False


class HistoryLimits(Value):
    """When an execution hands over to a fresh one: after so many events, bytes or seconds.

    Part of the run, not of the worker: a worker with other limits could not replay what this one did.
    """

    events: int = 1000
    size: int = 1_000_000
    seconds: float = 86_400.0


class ParentLink(Value):
    """The run that started this one as a sub-agent, and which of its calls waits for it."""

    run_id: str = Field(min_length=1, max_length=1000)
    call_id: str


class ChildOutcome(Value):
    """How a sub-agent's run ended: its final text, or the error that ended it; its usage either way."""

    text: str = ""
    error: str = ""
    usage: Usage = Usage()


class ChildState(BaseModel):
    """A sub-agent's run, as its parent knows it. Children report by signal, so that they survive continue-as-new.

    Attributes:
        id: The child's run id.
        name: The sub-agent's name.
        call_id: The parent's tool call that waits for it.
        report: The number of the newest report; older ones that arrive late are ignored.
        decided: Tool call ids of the child that were decided here; a late report does not bring them back.
        outcome: Set when it has ended.
    """

    id: str
    name: str
    call_id: str
    report: int = 0
    decided: list[str] = Field(default_factory=list)
    outcome: ChildOutcome | None = None


class ChildReport(Value):
    """What a child tells its parent: what waits for a decision, or how it ended."""

    child: str
    number: int
    pending: tuple[PendingInterrupt, ...] = ()
    refused: tuple[str, ...] = ()
    paused: str = ""
    outcome: ChildOutcome | None = None


class RunState(BaseModel):
    """The state of a run. ``transcript`` travels beside it, in chunks.

    Attributes:
        step: 1-based number of the current model turn; 0 before the first.
        draft: The completion of the current step while ``after_model`` hooks run.
        batch: The calls of the current step; None between steps.
        pending: Interrupts without an answer.
        inbox: Messages sent to the run and not yet in the transcript.
        seen_ids: Command ids already obeyed, newest last; the server's own dedupe ends at continue-as-new.
        pause: Why the run is parked, if it is.
        abort: Why somebody aborted the run, until it has ended.
        failure: Code and message of the error that ended the run.
        output_retries: How often the final answer did not fit the response format.
        history_limits: As the run was started with.
        parent: Set where this run is a sub-agent's.
        children: Sub-agents of the current step.
        outbox: Decisions for children, not yet sent: child's run id and the message.
        reports, refused: How many reports were sent to the parent; decisions of it that could not be obeyed.
        fingerprint: Of the agent's definition when this execution began.
        archive: What of the transcript is in storage alone.
        archive_before: The newest message id that a hook declared everything before to be old.
        earlier_calls: The highest number in the call ids of the conversation the run goes on with; its own are higher.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    schema_version: int = SCHEMA_VERSION
    agent: str
    step: int = 0
    status: RunStatus = "running"
    transcript: list[Message] = Field(default_factory=list, exclude=True)
    invocation_state: dict[str, Json] = Field(default_factory=dict)
    usage: Usage = Usage()
    draft: Completion | None = None
    batch: list[CallState] | None = None
    pending: list[PendingInterrupt] = Field(default_factory=list)
    interrupted: tuple[PendingInterrupt, ...] = Field(default=(), exclude_if=not_)
    inbox: list[Message] = Field(default_factory=list)
    seen_ids: list[str] = Field(default_factory=list)
    audit: list[AuditRecord] = Field(default_factory=list)
    history_limits: HistoryLimits = HistoryLimits()
    parent: ParentLink | None = None
    children: list[ChildState] = Field(default_factory=list)
    outbox: list[tuple[str, dict[str, Json]]] = Field(default_factory=list)
    reports: int = 0
    refused: list[str] = Field(default_factory=list)
    pause: PauseInfo | None = None
    abort: str | None = None
    failure: tuple[str, str] | None = None
    finish: str = ""
    output: Json = None
    output_retries: int = 0
    fingerprint: str = ""
    earlier_calls: int = 0
    archive: Archive = Archive()
    archive_before: str = ""
    started_at: datetime | None = None
    event_seq: int = 0
    event_tail: list[Event] = Field(default_factory=list)
    _events: EventLog = PrivateAttr(default_factory=EventLog)

    def model_post_init(self, _context: object) -> None:
        """Wrap the per-run dict so that writes are checked, and take up the event log."""
        self.invocation_state = InvocationState(self.invocation_state)
        self._events = EventLog(self.event_seq, tuple(self.event_tail))

    @property
    def events(self) -> EventLog:
        """The newest events."""
        return self._events

    @property
    def message_count(self) -> int:
        """How many messages the transcript has, archived ones included."""
        return self.archive.messages + len(self.transcript) - self.archive.kept

    def pack(self) -> None:
        """Put everything where serialisation finds it; call it before this state is written.

        Raises:
            TypeError: The per-run dict holds something that is not JSON; it is as it was at the last check.
        """
        assert isinstance(self.invocation_state, InvocationState)
        self.invocation_state.check()
        self.event_seq = self._events.seq
        self.event_tail = list(self._events.tail(CARRIED_EVENTS, CARRIED_EVENT_BYTES))

    def first_time(self, command_id: str) -> bool:
        """True once per command id; an empty id is always new."""
        if not command_id:
            return True
        if command_id in self.seen_ids:
            return False
        self.seen_ids.append(command_id)
        del self.seen_ids[:-KEPT_COMMAND_IDS]
        return True

    def record(self, record: AuditRecord) -> None:
        """Append to the audit trail; the newest are kept, each is also an event."""
        self.audit.append(record)
        del self.audit[:-KEPT_AUDIT_RECORDS]

    def result(self) -> RunResult:
        """What a caller of ``result()`` gets now."""
        return RunResult(
            output=self.output,
            messages=tuple(self.transcript[self.archive.kept :]),
            archived=self.archive.parts,
            invocation_state=dict(self.invocation_state),
            usage=self.usage,
            steps=self.step,
            status=self.status,
            finish=self.finish,
            interrupts=tuple(self.pending) or self.interrupted,
            audit=tuple(self.audit),
        )


class RunResult(Value):
    """The outcome of a run.

    Attributes:
        output: The final text, or the parsed JSON where a response format was asked for.
        messages: The transcript; hand it to another run to go on from here. Empty where it was too large to return
            without storage (``messages_omitted``), as are ``invocation_state`` and ``audit`` where they are too;
            ``run.messages()`` reads it in pages.
        archived: The transcript's first part, where it is in storage; ``run.result()`` has fetched it already.
        usage: Tokens over the run, retries and middleware's own calls included.
        steps: Model turns.
        interrupts: What is pending, or was when the run ended (AC-73).
        audit: Who decided what.
    """

    output: Json = None
    messages: tuple[Message, ...] = ()
    archived: tuple[ArchivedPart, ...] = Field(default=(), exclude_if=not_)
    invocation_state: dict[str, Json] = Field(default_factory=dict)
    usage: Usage = Usage()
    steps: int = 0
    status: RunStatus = "completed"
    finish: str = ""
    interrupts: tuple[PendingInterrupt, ...] = ()
    audit: tuple[AuditRecord, ...] = ()
    messages_omitted: bool = False


class RunInput(Value):
    """What starts a run; ``temporal workflow start --type AgentRun --input '{"agent": ..., "input": ...}'`` works.

    Attributes:
        input: The user's message; None with ``messages`` that end in a user message.
        messages: An earlier conversation to go on with.
    """

    agent: str = Field(max_length=1000)
    input: str | None = None
    messages: tuple[Message, ...] = ()
    invocation_state: dict[str, Json] = Field(default_factory=dict)
    parent: ParentLink | None = None
    history_limits: HistoryLimits = HistoryLimits()


_CALL_ID = re.compile(r"call_(\d{1,15})_\d+")
_OWN_ID = re.compile(r"m\d+")


def new_state(start: RunInput, messages: Sequence[Message], now: datetime) -> RunState:
    """The state of a run that is about to begin."""
    state = RunState(
        agent=start.agent,
        invocation_state=start.invocation_state,
        started_at=now,
        parent=start.parent,
        history_limits=start.history_limits,
    )
    state.transcript = [
        message if message.id and not _OWN_ID.fullmatch(message.id) else message.model_copy(update={"id": f"m{number}"})
        for number, message in enumerate(messages, start=1)
    ]
    found = (_CALL_ID.fullmatch(call.id) for message in messages for call in message.tool_calls)
    state.earlier_calls = max((int(match[1]) for match in found if match), default=0)
    return state
