"""``human_in_the_loop``: a person approves, edits or rejects a tool call before it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from outlast.approvals import DECISIONS, Decision, parse_decision
from outlast.effects import SideEffect
from outlast.errors import AgentError, HitlInterrupt, ToolRejection, hitl_key
from outlast.messages import Json, Value
from outlast.middleware.contract import HookContext
from outlast.tools import ToolCall, awaited


class DecisionRequest(Value):
    """What a ``decide`` callback is asked: the call, its ``hitl_key``, and what it may answer."""

    key: str
    tool: str
    args: dict[str, Json]
    tool_call_id: str
    allowed_decisions: tuple[str, ...] = DECISIONS
    description: str = ""


Decide: TypeAlias = Callable[[Any], Any | Awaitable[Any]]
"""Takes a :class:`DecisionRequest` (a ``@side_effect`` function: its fields as a dict) and returns ``"approve"``,
``{"edit": args}``, ``{"reject": "why"}`` or ``{"suspend": True}``."""


@dataclass(frozen=True)
class ToolApproval:
    """How one tool is approved.

    Attributes:
        allowed_decisions: Any of ``approve``, ``edit``, ``reject``.
        timeout_seconds, on_timeout: With no answer in time this is decided: ``reject``, or ``approve`` if you must.
        reminder_seconds: When watchers are reminded.
    """

    allowed_decisions: tuple[str, ...] = DECISIONS
    description: str = ""
    timeout_seconds: float | None = None
    on_timeout: str = "reject"
    reminder_seconds: float | None = None


_KEYS = {
    "allowed_decisions": "allowed_decisions",
    "allowedDecisions": "allowed_decisions",
    "description": "description",
    "timeout_seconds": "timeout_seconds",
    "on_timeout": "on_timeout",
    "reminder_seconds": "reminder_seconds",
}


@dataclass(frozen=True)
class HumanInTheLoop:
    """See :func:`human_in_the_loop`."""

    interrupt_on: Mapping[str, ToolApproval]
    decide: Decide | None = None
    name: str = field(default="human_in_the_loop")

    async def before_tool(self, call: ToolCall, ctx: HookContext) -> ToolCall | None:
        """Stored decision, then ``decide``, then wait for a person."""
        approval = self.interrupt_on.get(call.name)
        if approval is None:
            return None
        decision = ctx.decision(call)
        if decision is None and self.decide is not None:
            decision = await self._ask(call, approval)
        if decision is None or decision.kind == "suspend":
            raise _interrupt(call, approval)
        if decision.kind not in approval.allowed_decisions:
            allowed = ", ".join(approval.allowed_decisions)
            raise AgentError(
                "HITL_DECISION", f"{call.name} may not be decided with {decision.kind!r}; allowed: {allowed}"
            )
        if decision.kind == "reject":
            raise ToolRejection(decision.reason)
        return call.replace(args=decision.args or {}) if decision.kind == "edit" else None

    async def _ask(self, call: ToolCall, approval: ToolApproval) -> Decision:
        assert self.decide is not None
        request = DecisionRequest(
            key=hitl_key(call.name, call.args),
            tool=call.name,
            args=call.args,
            tool_call_id=call.id,
            allowed_decisions=approval.allowed_decisions,
            description=approval.description,
        )
        shown = request.model_dump(mode="json") if isinstance(self.decide, SideEffect) else request
        answer = await awaited(self.decide(shown))
        try:
            return parse_decision(answer)
        except ValueError as error:
            raise AgentError("HITL_DECISION", f"decide answered for {call.name}: {error}") from error


def _interrupt(call: ToolCall, approval: ToolApproval) -> HitlInterrupt:
    return HitlInterrupt(
        call.name,
        call.args,
        allowed_decisions=approval.allowed_decisions,
        description=approval.description,
        timeout_seconds=approval.timeout_seconds,
        on_timeout=approval.on_timeout,
        reminder_seconds=approval.reminder_seconds,
    )


def human_in_the_loop(
    interrupt_on: Mapping[str, bool | ToolApproval | Mapping[str, Any]], decide: Decide | None = None
) -> HumanInTheLoop:
    """Pause tools for approve, edit, reject or suspend (AC-54 to AC-75).

    Args:
        interrupt_on: Per tool name: True (all three decisions), False (runs unasked), or what is allowed:
            ``{"allowed_decisions": ["approve", "reject"], "timeout_seconds": 3600}``.
        decide: Answers at once instead of a person, sync or async; ``{"suspend": True}`` asks a person after all. A
            plain function is a hook like any other, and is called anew where the run is replayed; one with I/O is a
            ``@side_effect`` function: it runs as an activity, once per call, and takes the request as a dict.

    Decisions are looked up by exact ``hitl_key(tool, args)`` first, then by bare tool name. With no answer in
    time the call is rejected: it fails closed.

    Raises:
        TypeError, ValueError: An unknown option, an empty or misspelt decision (D17).
    """
    if not isinstance(interrupt_on, Mapping):
        raise TypeError(f"interrupt_on must map tool names to True, False or options, not {interrupt_on!r:.80}")
    if decide is not None and not callable(decide):
        raise TypeError(f"decide must be a function, not {decide!r:.80}")
    approvals = {tool: _approval(tool, value) for tool, value in interrupt_on.items() if value is not False}
    return HumanInTheLoop(approvals, decide)


def _approval(tool: object, value: object) -> ToolApproval:
    place = f"interrupt_on[{tool!r}]"
    if not isinstance(tool, str) or not tool:
        raise TypeError(f"{place}: tool names are text")
    if value is True:
        return ToolApproval()
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in _KEYS]
        if unknown:
            known = ", ".join(dict.fromkeys(_KEYS.values()))
            raise ValueError(f"{place}: unknown option {', '.join(map(repr, unknown))}; known: {known}")
        value = ToolApproval(**{_KEYS[key]: _frozen(item) for key, item in value.items()})
    if not isinstance(value, ToolApproval):
        raise TypeError(f"{place} must be True, False or options, not {value!r:.80}")
    _check_decisions(place, value.allowed_decisions)
    if value.on_timeout not in ("approve", "reject"):
        raise ValueError(f"{place}: on_timeout must be 'reject' or 'approve', not {value.on_timeout!r}")
    for name in ("timeout_seconds", "reminder_seconds"):
        seconds = getattr(value, name)
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise ValueError(f"{place}: {name} must be more than 0 seconds, not {seconds!r}")
    return value


def _frozen(item: Any) -> Any:  # noqa: ANN401 - one option's value
    return tuple(item) if isinstance(item, Sequence) and not isinstance(item, str) else item


def _check_decisions(place: str, allowed: object) -> None:
    if not isinstance(allowed, tuple) or not allowed:
        raise ValueError(f"{place}: allowed_decisions must be a list of {', '.join(DECISIONS)}, and not empty")
    unknown = [item for item in allowed if item not in DECISIONS]
    if unknown:
        raise ValueError(f"{place}: unknown decision {', '.join(map(repr, unknown))}; allowed: {', '.join(DECISIONS)}")
