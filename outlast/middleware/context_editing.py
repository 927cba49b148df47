"""``context_editing_middleware``: edits of the conversation before each model call, on the call's copy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

from outlast.growing import grown
from outlast.messages import AnyBlock, Json, Message
from outlast.middleware.contract import HookContext
from outlast.middleware.memory import recall, remember
from outlast.middleware.options import ToolNames, check_whole, tool_names
from outlast.model import ModelRequest
from outlast.tokens import estimate_request

_Kept: TypeAlias = tuple[tuple[Message, ...], frozenset[str]]
"""Messages that stay, and the ids of the calls that went."""


@runtime_checkable
class ContextEdit(Protocol):
    """One edit. Pure: the same request and memory give the same answer."""

    def apply(self, request: ModelRequest, memory: Mapping[str, Json]) -> tuple[ModelRequest, dict[str, Json]]:
        """The edited request, and what to remember until the next call (JSON values)."""
        ...


@dataclass(frozen=True)
class ClearToolUsesEdit:
    """Strips old pairs of tool call and result once the request is larger than a trigger (AC-100 to AC-106).

    A stripped pair stays stripped, and nothing more goes until the trigger is crossed again: requests keep a stable
    beginning, which providers' prompt caches like.

    Attributes:
        trigger_tokens: Estimated tokens; strictly more than this strips.
        keep_recent: The newest pairs are kept; 0 keeps none.
        exclude_tools: Pairs of these tools are kept: names, functions or tools.

    Raises:
        TypeError, ValueError: An option is out of range; the message names it.
    """

    trigger_tokens: int = 100_000
    keep_recent: int = 3
    exclude_tools: ToolNames = ()

    def __post_init__(self) -> None:
        check_whole("ClearToolUsesEdit: trigger_tokens", self.trigger_tokens, 0)
        check_whole("ClearToolUsesEdit: keep_recent", self.keep_recent, 0)
        object.__setattr__(self, "exclude_tools", tool_names("ClearToolUsesEdit: exclude_tools", self.exclude_tools))

    def apply(self, request: ModelRequest, memory: Mapping[str, Json]) -> tuple[ModelRequest, dict[str, Json]]:
        """Strip what was stripped before; strip more where the rest is still too large."""
        before: Json = memory.get("stripped")
        stripped = set(before) if isinstance(before, list) else set()
        shown = _shown(request, stripped)
        if estimate_request(shown) > self.trigger_tokens:
            candidates = self._strippable(request.messages)
            if candidates - stripped:
                stripped |= candidates
                # A list in the order of the conversation: the same in every replay.
                calls = [call.id for message in request.messages for call in message.tool_calls]
                return _shown(request, stripped), {"stripped": [call_id for call_id in calls if call_id in stripped]}
        return shown, {"stripped": before} if stripped else {}

    def _strippable(self, messages: Sequence[Message]) -> set[str]:
        """Ids of pairs that may go: complete, not pinned, not excluded, not among the newest."""
        answers = {result.call_id: message for message in messages for result in message.tool_results}
        pairs = [(message, call) for message in messages for call in message.tool_calls if call.id in answers]
        kept = set(self.exclude_tools)
        old = pairs[: len(pairs) - self.keep_recent] if self.keep_recent else pairs
        return {
            call.id
            for message, call in old
            if not message.pinned and not answers[call.id].pinned and call.name not in kept
        }


def _shown(request: ModelRequest, stripped: set[str]) -> ModelRequest:
    if not stripped:
        return request
    pairs = frozenset(stripped)
    kept, _ = grown((_shown, pairs), request.messages, _NOTHING, partial(_without, pairs))
    return request.model_copy(update={"messages": kept})


_NOTHING: _Kept = ((), frozenset())


def _without(stripped: frozenset[str], before: _Kept, messages: Sequence[Message]) -> _Kept:
    """What is kept without these pairs. A message whose signed reasoning belongs to its calls loses all or none."""
    gone = before[1] | {
        call.id
        for message in messages
        for call in message.tool_calls
        if call.id in stripped and (not message.is_signed or all(c.id in stripped for c in message.tool_calls))
    }
    kept = [*before[0]]
    for message in messages:
        if message.role == "tool":
            if not any(result.call_id in gone for result in message.tool_results):
                kept.append(message)
        elif any(call.id in gone for call in message.tool_calls):
            blocks = _rest(message, gone)
            if blocks:
                kept.append(message.replace(blocks=blocks))
        else:
            kept.append(message)
    return tuple(kept), gone


def _rest(message: Message, gone: frozenset[str]) -> tuple[AnyBlock, ...]:
    """What stays of an assistant message. Reasoning goes with the last of its calls."""
    blocks = tuple(block for block in message.blocks if not (block.kind == "tool_call" and block.id in gone))
    if any(block.kind == "tool_call" for block in blocks):
        return blocks
    return tuple(block for block in blocks if block.kind != "reasoning")


@dataclass(frozen=True)
class ContextEditing:
    """See :func:`context_editing_middleware`."""

    edits: tuple[ContextEdit, ...]
    name: str = field(default="context_editing")

    def before_model(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
        """Run the edits in order; what each remembers is kept per run."""
        memory = recall(ctx, self.name)
        for index, edit in enumerate(self.edits):
            key = f"{index}.{type(edit).__name__}"
            request, remembered = edit.apply(request, memory.get(key, {}))
            if remembered:
                memory[key] = remembered
        if len(memory) > 1:
            remember(ctx, self.name, memory)
        return request


def context_editing_middleware(edits: Sequence[ContextEdit] | None = None) -> ContextEditing:
    """Edit the conversation before each model call; the transcript itself is never edited (AC-99).

    Args:
        edits: In order; None is ``[ClearToolUsesEdit()]``.

    Raises:
        TypeError: Something has no ``apply``.
    """
    chosen = (ClearToolUsesEdit(),) if edits is None else tuple(edits)
    for edit in chosen:
        if isinstance(edit, type) or not isinstance(edit, ContextEdit):
            raise TypeError(f"context_editing_middleware: {edit!r:.80} is not an edit; it needs apply(request, memory)")
    return ContextEditing(chosen)
