"""``pii_redact``: personal data is redacted, masked, hashed or blocked on its way to the model, back, and into tools.

Several instances in one agent act as one, at the place of the last: their matches are resolved together, so that their
order changes nothing (AC-86).

Answers and results are redacted inside the activities that bring them. Input is redacted by the hook, in workflow code;
where a detector of the user's own is among the instances, by the model's activity instead, under a time limit (AC-87).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import is_
from typing import get_args

from outlast.messages import Json, Message
from outlast.middleware.contract import HookContext
from outlast.middleware.edge_filter import EdgeFilter, TextStream
from outlast.middleware.options import check_choice, check_text
from outlast.middleware.pii_filter import Blocked, PiiFilter, redact_json
from outlast.middleware.pii_rules import CustomDetector, RedactedStream, Rule, Rules, Strategy, make_rule
from outlast.model import Completion, ModelRequest
from outlast.tools import ToolCall, ToolResult

MAX_EVENT = 50_000
"""Characters of an event that patterns of the user's own are asked about; they run in workflow code here."""


@dataclass(frozen=True)
class PiiRedact:
    """See :func:`pii_redact`."""

    rule: Rule
    apply_to_input: bool
    apply_to_output: bool
    apply_to_tool_results: bool
    apply_to_tool_args: bool
    at_edges: bool
    name: str

    def before_model(self, request: ModelRequest, ctx: HookContext) -> ModelRequest | None:
        """The conversation as the model may see it; the transcript keeps the original (AC-89)."""
        found = self._filter(ctx.middleware)
        if found is None or self._leaves_it_to_activities(ctx):
            return None
        messages = found.messages(request.messages)
        same = all(map(is_, messages, request.messages))
        return None if same else request.model_copy(update={"messages": messages})

    def after_model(self, completion: Completion, ctx: HookContext) -> Completion | None:
        """What no activity brought: an answer that a hook made."""
        found = self._filter(ctx.middleware)
        return found.completion(completion) if found is not None and not self._leaves_it_to_activities(ctx) else None

    def before_tool(self, call: ToolCall, ctx: HookContext) -> None:
        """Refuse a call with a blocked value in its arguments."""
        found = self._filter(ctx.middleware)
        if found is not None:
            found.check_args(call, search=not self._leaves_it_to_activities(ctx))

    def after_tool(self, result: ToolResult, ctx: HookContext) -> ToolResult | None:
        """What no activity brought: a rejection's reason, an error in the call."""
        team = _team(self, ctx.middleware)
        if not self._leaves_it_to_activities(ctx):
            return _combined(team).result(result) if team else None
        if result.status in ("executed", "emulated"):
            return None
        return _combined(tuple(item for item in team if not item.rule.detector.is_function)).result(result)

    def edge_filter(self, middlewares: Sequence[object]) -> EdgeFilter | None:
        """For clients, activities and events; see :mod:`outlast.middleware.edge_filter`."""
        team = _team(self, middlewares)
        return _PiiEdge.of(team) if team else None

    def _leaves_it_to_activities(self, ctx: HookContext) -> bool:
        """In a run, where a detector of the user's own could take long."""
        return any(item.rule.is_own for item in ctx.middleware if isinstance(item, PiiRedact))

    def _filter(self, middlewares: Sequence[object]) -> PiiFilter | None:
        team = _team(self, middlewares)
        return _combined(team) if team else None


def _team(one: PiiRedact, middlewares: Sequence[object]) -> tuple[PiiRedact, ...]:
    """All instances, where this one acts for them; nobody, where another does."""
    members = tuple(item for item in middlewares if isinstance(item, PiiRedact)) or (one,)
    return members if members[-1] is one else ()


@lru_cache(maxsize=256)
def _combined(members: tuple[PiiRedact, ...]) -> PiiFilter:
    return PiiFilter(
        input=Rules(tuple(item.rule for item in members if item.apply_to_input)),
        output=Rules(tuple(item.rule for item in members if item.apply_to_output)),
        results=Rules(tuple(item.rule for item in members if item.apply_to_tool_results)),
        args=Rules(tuple(item.rule for item in members if item.apply_to_tool_args)),
        sealed=Rules(tuple(item.rule for item in members if item.at_edges)),
    )


@dataclass(frozen=True)
class _PiiEdge:
    """What people send is filtered by the instances that are at the edges; all else by all (AC-84, AC-88)."""

    edge: PiiFilter
    at_edges: Rules
    inner: PiiFilter
    outputs: Rules
    observed: Rules
    is_slow: bool
    hides_args: bool

    @classmethod
    def of(cls, members: tuple[PiiRedact, ...]) -> _PiiEdge:
        edging = tuple(item for item in members if item.at_edges)
        return cls(
            _combined(edging),
            Rules(tuple(item.rule for item in edging)),
            _combined(members),
            Rules(tuple(item.rule for item in members if item.at_edges or item.apply_to_tool_results)),
            Rules(tuple(item.rule for item in members if not item.rule.detector.is_function)),
            any(item.rule.is_own for item in members),
            any(item.rule.detector.is_function and not item.apply_to_tool_args for item in members),
        )

    def messages(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        return self.edge.messages(messages)

    def sent(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        if self.is_slow:
            return self.inner.messages(messages)
        return messages if isinstance(messages, tuple) else tuple(messages)

    def completion(self, completion: Completion) -> Completion:
        return self.inner.completion(completion)

    def result(self, result: ToolResult) -> ToolResult:
        return self.inner.result(result)

    def args(self, args: dict[str, Json]) -> dict[str, Json]:
        return dict(redact_json(args, self.edge.args, Blocked()))

    def value(self, value: Json) -> Json:
        return redact_json(value, self.at_edges, Blocked())

    def output(self, value: Json) -> Json:
        return redact_json(value, self.outputs, Blocked())

    def event(self, data: dict[str, Json]) -> dict[str, Json]:
        if self.is_slow and (size := len(str(data))) > MAX_EVENT:
            return {"withheld": f"{size:,} characters"}
        if self.hides_args and "args" in data:  # no function of the user's has looked at them
            data = {**data, "args": {}, "withheld": "args"}
        try:
            return dict(redact_json(data, self.observed, Blocked()))
        except Exception as error:  # keys that are no text, say; what watchers are told must not stop a run
            return {"withheld": f"it could not be read: {type(error).__name__}"}

    def stream(self) -> TextStream | None:
        return RedactedStream(self.inner.output) if self.inner.output.rules else None


def pii_redact(
    pii_type: str,
    strategy: Strategy = "redact",
    detector: CustomDetector | None = None,
    *,
    apply_to_input: bool = True,
    apply_to_output: bool = True,
    apply_to_tool_results: bool = True,
    apply_to_tool_args: bool | None = None,
    at_edges: bool = False,
    hash_key: str | bytes | None = None,
    name: str | None = None,
) -> PiiRedact:
    """Keep one kind of personal data from the model, or from everything (AC-76 to AC-89).

    Args:
        pii_type: ``email``, ``credit_card``, ``ip``, or a type of your own with a ``detector``.
        strategy: ``redact`` puts ``[REDACTED_<TYPE>]``; ``mask`` the first character and dots; ``hash`` 16 hex digits
            of SHA-256; ``block`` refuses: a tool's result or call is rejected, a message or an answer ends the run
            with the code ``REJECTED``. No error holds the value.
        detector: A regular expression whose work on any text is bounded, or a pure, quick function that gives spans. In
            a run it is applied inside activities, for 30 seconds at most.
        apply_to_input, apply_to_output, apply_to_tool_results: Every user message; every text of the model; every
            result.
        apply_to_tool_args: Also the arguments of tool calls, which tools then get redacted. Off unless ``at_edges``;
            in the run's events they are redacted in any case.
        at_edges: Redact also what people send, before it becomes history: in clients that are given this middleware
            (``Client(filters=[...])``). Off, the transcript keeps what users wrote; only the model does not see it.
        hash_key: Makes ``hash`` an HMAC: without a key, cards and addresses can be found again by trying all.
        name: Needed where an agent has two instances of one type.

    Raises:
        TypeError, ValueError: An unknown type without a detector, an unknown strategy, a pattern that can match nothing
            or whose work cannot be bounded.
    """
    check_text("pii_redact: pii_type", pii_type)
    check_choice("pii_redact: strategy", strategy, get_args(Strategy))
    if len(pii_type) > 50:
        raise ValueError(f"pii_redact: pii_type has {len(pii_type)} characters; 50 are allowed")
    key = hash_key.encode() if isinstance(hash_key, str) else hash_key
    if key is not None and (strategy != "hash" or not key):
        raise ValueError("pii_redact: hash_key is for strategy='hash', and not empty")
    return PiiRedact(
        make_rule(pii_type, strategy, detector, key),
        apply_to_input,
        apply_to_output,
        apply_to_tool_results,
        at_edges if apply_to_tool_args is None else apply_to_tool_args,
        at_edges,
        name if name is not None else f"pii_redact.{pii_type}",
    )
