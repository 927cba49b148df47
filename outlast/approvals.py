"""Interrupts and the decisions that answer them: pure values and pure look-ups. Everything here fails closed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from pydantic import Field

from outlast.errors import DecisionRefused, HitlInterrupt, hitl_key
from outlast.messages import Json, Value

DecisionKind: TypeAlias = Literal["approve", "edit", "reject", "suspend"]
DECISIONS: tuple[DecisionKind, ...] = ("approve", "edit", "reject")
"""What ``allowed_decisions`` may name; ``suspend`` is always allowed (AC-59)."""

STORED_DECISIONS = "__hitl_decisions"
"""The key of ``invocation_state`` under which an operator keeps standing decisions (AC-63)."""


class Decision(Value):
    """What somebody decided.

    Attributes:
        args: The new arguments of an edit; they replace, they do not merge (AC-57).
        reason: Why it was rejected; the model reads it.
        by: Who decided, as the sender says; authenticate senders at your gateway.
        comment: For the audit trail.
    """

    kind: DecisionKind
    args: dict[str, Json] | None = None
    reason: str = ""
    by: str = ""
    comment: str = ""


class PendingInterrupt(Value):
    """A call that waits for a decision.

    Attributes:
        interrupt_id: ``hitl_key(tool, args)``; identical parallel calls share it (AC-71).
        args: What will run if it is approved.
        allowed_decisions: Any of ``approve``, ``edit``, ``reject``.
        expires_at: When ``on_timeout`` is decided by itself; None is never.
        path: The names of sub-agents from the run down to the one that asks; empty for the run itself.
    """

    interrupt_id: str
    tool_call_id: str
    tool: str
    args: dict[str, Json] = Field(default_factory=dict)
    allowed_decisions: tuple[str, ...] = DECISIONS
    description: str = ""
    requested_at: datetime | None = None
    expires_at: datetime | None = None
    on_timeout: str = "reject"
    reminder_at: datetime | None = None
    path: tuple[str, ...] = ()


class AuditRecord(Value):
    """One line of the audit trail: who decided what, when, on what they were shown, and what then ran."""

    at: datetime
    interrupt_id: str
    tool_call_id: str
    tool: str
    shown_args: dict[str, Json]
    decision: Decision
    executed_args: dict[str, Json] | None = None


class DecisionMessage(Value):
    """The signal's and the update's value: which interrupt, and what was decided.

    Attributes:
        interrupt: An interrupt id, a tool call id, or a bare tool name where only one interrupt is of that tool.
        id: A command id; a second message with the same id does nothing.
    """

    interrupt: str
    decision: Decision
    id: str = ""


def parse_decision(value: object) -> Decision:
    """``"approve"``, ``{"edit": {...}}``, ``{"reject": "why"}``, ``{"suspend": true}`` or a :class:`Decision`.

    Raises:
        ValueError: Anything else; the message lists the forms.
    """
    if isinstance(value, Decision):
        return value
    if value in ("approve", "reject", "suspend"):
        return Decision(kind=value)
    if isinstance(value, Mapping) and len(value) == 1:
        [(kind, content)] = value.items()
        if kind == "edit" and isinstance(content, Mapping) and all(isinstance(key, str) for key in content):
            return Decision(kind="edit", args=dict(content))
        if kind == "reject" and (content is None or isinstance(content, str)):
            return Decision(kind="reject", reason=content or "")
        if kind in ("approve", "suspend") and content is True:
            return Decision(kind=kind)
    raise ValueError(
        f"{_short(value)} is not a decision; "
        "use 'approve', {'edit': {...}}, {'reject': 'why'} or {'suspend': true}"
    )


def parse_decision_message(value: object) -> DecisionMessage:
    """The message of a ``decide`` signal or update: ``{"interrupt": WHICH, "decision": ..., "by": ...}``.

    Raises:
        ValueError: It has another form; the message says which part.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"a decision message is an object with 'interrupt' and 'decision', not {_short(value)}")
    unknown = sorted(
        str(key) for key in value.keys() - {"interrupt", "decision", "by", "comment", "id", "args", "reason"}
    )
    if unknown:
        raise ValueError(
            f"unknown field {', '.join(unknown)}; known: interrupt, decision, args, reason, by, comment, id"
        )
    texts = {name: value.get(name) or "" for name in ("interrupt", "by", "comment", "id", "reason")}
    wrong = [name for name, text in texts.items() if not isinstance(text, str) or len(text) > 100_000]
    if wrong or not texts["interrupt"]:
        raise ValueError(f"{', '.join(wrong) or 'interrupt'} must be a text" + ("" if wrong else " and not empty"))
    raw = value.get("decision")
    if raw == "edit":
        raw = {"edit": value.get("args")}
    decision = parse_decision(raw)
    reason = decision.reason or texts["reason"]
    decision = decision.replace(by=texts["by"][:200], comment=texts["comment"][:4000], reason=reason[:4000])
    return DecisionMessage(interrupt=texts["interrupt"], decision=decision, id=texts["id"][:200])


def find_interrupts(pending: Sequence[PendingInterrupt], which: str) -> list[PendingInterrupt]:
    """The interrupts that ``which`` names: by id (all identical calls), by tool call id, or by bare tool name.

    Raises:
        DecisionRefused: None is named so, or a tool name fits calls with different arguments.
    """
    exact = [item for item in pending if item.interrupt_id == which] or [
        item for item in pending if item.tool_call_id == which
    ]
    if exact:
        return exact
    named = [item for item in pending if item.tool == which]
    if len({item.interrupt_id for item in named}) == 1:
        return named
    if named:
        ids = ", ".join(item.tool_call_id for item in named)
        raise DecisionRefused(f"{len(named)} calls of {which!r} wait with different arguments; name one: {ids}")
    known = ", ".join(f"{item.tool} ({item.tool_call_id})" for item in pending)
    raise DecisionRefused(
        f"nothing pending is called {_short(which)}; "
        + (f"pending: {known}" if known else "no decision is pending (it may be decided already)")
    )


def check_allowed(interrupt: PendingInterrupt, decision: Decision) -> None:
    """Raise DecisionRefused unless this interrupt may be answered so."""
    if decision.kind != "suspend" and decision.kind not in interrupt.allowed_decisions:
        allowed = ", ".join(interrupt.allowed_decisions)
        raise DecisionRefused(f"{interrupt.tool} may not be decided with {decision.kind!r}; allowed: {allowed}")


def stored_decision(state: Mapping[str, Json], tool: str, args: Mapping[str, Json]) -> tuple[str, object] | None:
    """The key and the value of a stored decision for a call: the exact key first, then the bare tool name (AC-62)."""
    stored = state.get(STORED_DECISIONS)
    if not isinstance(stored, Mapping):
        return None
    return next(((key, stored[key]) for key in (hitl_key(tool, args), tool) if key in stored), None)


def pending_interrupt(error: HitlInterrupt, tool_call_id: str, now: datetime) -> PendingInterrupt:
    """The pending interrupt that a raised one becomes."""
    return PendingInterrupt(
        interrupt_id=error.interrupt_id,
        tool_call_id=tool_call_id,
        tool=error.tool,
        args=error.args,
        allowed_decisions=error.allowed_decisions,
        description=error.description,
        requested_at=now,
        expires_at=_after(now, error.timeout_seconds),
        on_timeout=error.on_timeout,
        reminder_at=_after(now, error.reminder_seconds),
    )


def next_deadline(pending: Iterable[PendingInterrupt]) -> datetime | None:
    """The earliest expiry or reminder among the pending interrupts."""
    times = [time for item in pending for time in (item.expires_at, item.reminder_at) if time is not None]
    return min(times, default=None)


def timeout_decision(interrupt: PendingInterrupt) -> Decision:
    """What is decided when nobody answered in time; anything unknown is a rejection."""
    kind: DecisionKind = "approve" if interrupt.on_timeout == "approve" else "reject"
    return Decision(kind=kind, reason="Nobody decided in time." if kind == "reject" else "", by="outlast:timeout")


def _after(now: datetime, seconds: float | None) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
