"""``summarization_middleware``: past a trigger the model sees a summary of the old part and the newest messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from outlast.errors import is_control
from outlast.messages import Json, Message, pinned_groups, user
from outlast.middleware.contract import HookContext
from outlast.middleware.memory import recall, remember
from outlast.middleware.options import check_model, check_text, check_whole
from outlast.model import Completion, Model, ModelRequest
from outlast.tokens import estimate_messages, estimate_request, estimate_text

PROMPT = (
    "Below is the older part of a conversation between a user and an assistant that uses tools. Write the notes that "
    "the assistant needs to go on with the task: the user's goal and wishes, what was found out (names, numbers, ids, "
    "paths, exactly), what was done and with which result, what was decided, and what is still open. Do not repeat "
    "what is settled and no longer matters. Answer with the notes alone."
)


WORTH = 0.2
"""After the first summary: what is summarized next has at least this share of the trigger, lest every step does it."""


@dataclass(frozen=True)
class Summarization:
    """See :func:`summarization_middleware`."""

    model: str | Model
    trigger_tokens: int
    keep_messages: int = 20
    prompt: str = PROMPT
    summary_input_tokens: int = 50_000
    name: str = field(default="summarization")

    @property
    def models(self) -> tuple[str | Model, ...]:
        """The summarizer."""
        return (self.model,)

    async def before_model(self, request: ModelRequest, ctx: HookContext) -> ModelRequest | None:
        """Show the summary there is; make a new one where the trigger is crossed."""
        memory = recall(ctx, self.name)
        shown = _shown(request, memory)
        factor = _number(memory, "factor", 1.0)
        size = estimate_request(shown)
        if size * factor >= self.trigger_tokens:
            rest = _rest(request, memory)
            cut = find_cut(rest, self.keep_messages, self.trigger_tokens)
            blocked = _number(memory, "retry_at", 0) > len(request.messages)
            worth = WORTH * self.trigger_tokens if memory.get("until") else 0  # D4
            if cut > 0 and not blocked and estimate_messages(rest[:cut]) * factor >= worth:
                memory = await self._compress(request, memory, cut, ctx)
                shown = _shown(request, memory)
                size = estimate_request(shown)
        memory["estimate"] = size
        remember(ctx, self.name, memory)
        return None if shown is request else shown

    def after_model(self, completion: Completion, ctx: HookContext) -> None:
        """Learn from the provider's own count how far off the estimate is."""
        memory = recall(ctx, self.name)
        estimate = _number(memory, "estimate", 0)
        if estimate > 0 and completion.usage.input_tokens > 0:
            memory["factor"] = round(min(3.0, max(0.5, completion.usage.input_tokens / estimate)), 3)
            remember(ctx, self.name, memory)

    async def _compress(
        self, request: ModelRequest, memory: dict[str, Json], cut: int, ctx: HookContext
    ) -> dict[str, Json]:
        """The memory with a new summary; with a note when to try again where the summarizer failed (AC-94)."""
        covered = _rest(request, memory)[:cut]
        stays = {id(message) for message in pinned_groups(covered)}
        old = [message for message in covered if id(message) not in stays]
        summary = str(memory.get("summary", ""))
        try:
            for piece in _pieces(old, self.summary_input_tokens):
                summary = await self._summarize(summary, piece, ctx)
        except Exception as error:
            if is_control(error):
                raise
            ctx.emit(f"summarization failed, going on with the whole conversation: {type(error).__name__}")
            return {**memory, "retry_at": len(request.messages) + max(5, self.keep_messages // 2)}
        until = covered[-1].id
        ctx.archive(until)
        ctx.emit(f"summarized {len(old)} messages")
        return {**memory, "summary": summary, "until": until, "retry_at": 0}

    async def _summarize(self, summary: str, piece: str, ctx: HookContext) -> str:
        """The old notes and a piece of conversation as new notes; plain text both ways (D5, D8)."""
        before = f"Notes so far:\n{summary}\n\n" if summary else ""
        request = ModelRequest(messages=(user(f"{self.prompt}\n\n{before}Conversation:\n{piece}"),))
        text = (await ctx.call_model(self.model, request)).message.text.strip()
        if not text:
            raise ValueError("the summarizer answered without text")
        return text


def summarization_middleware(
    model: str | Model,
    trigger_tokens: int,
    keep_messages: int = 20,
    *,
    prompt: str = PROMPT,
    summary_input_tokens: int = 50_000,
) -> Summarization:
    """Summarize the old part of the conversation once it is large (AC-90 to AC-98).

    The transcript is never changed; the summary and how far it reaches are kept in ``invocation_state``. The summarizer
    is called once per crossing, and each time folds its old notes into the new ones.

    Args:
        trigger_tokens: Estimated tokens of the whole request, corrected by what the provider reported; at this or more.
        keep_messages: The newest messages stay as they are; more stay where a cut would part a call from its result, or
            would cut into an unfinished turn with signed reasoning.
        summary_input_tokens: The old part is summarized in pieces of about this size.

    Raises:
        TypeError, ValueError: An option is out of range.
    """
    check_model("summarization_middleware: model", model)
    check_text("summarization_middleware: prompt", prompt)
    numbers: Mapping[str, object] = {
        "trigger_tokens": trigger_tokens,
        "keep_messages": keep_messages,
        "summary_input_tokens": summary_input_tokens,
    }
    for option, value in numbers.items():
        check_whole(f"summarization_middleware: {option}", value, 1)
    return Summarization(model, trigger_tokens, keep_messages, prompt, summary_input_tokens)


def find_cut(messages: Sequence[Message], keep: int, trigger_tokens: int) -> int:
    """How many of the oldest messages to summarize; 0 for none.

    The cut never parts a call from its result and never falls inside the last turn where its reasoning is signed.
    It keeps at least ``keep`` messages, unless those alone are over the trigger: then it moves forward to the first
    safe place that leaves less, and stays where there is none (AC-92).
    """
    start = max((index for index, message in enumerate(messages) if message.role == "user"), default=0)
    last = start if any(message.is_signed for message in messages[start:]) else len(messages) - 1
    safe = [index for index in range(1, last + 1) if messages[index].role != "tool"]  # its call stands before the cut
    cut = max((index for index in safe if index <= len(messages) - keep), default=0)
    left = [*accumulate((estimate_messages([message]) for message in reversed(messages)), initial=0)][::-1]
    if left[cut] >= trigger_tokens:
        cut = next((index for index in safe if index > cut and left[index] < trigger_tokens), cut)
    return cut if len(pinned_groups(messages[:cut])) < cut else 0


def _split(request: ModelRequest, memory: Mapping[str, Json]) -> tuple[list[Message], list[Message], list[Message]]:
    """System messages, the part that the summary covers, and the rest."""
    head = [message for message in request.messages if message.role == "system"]
    body = [message for message in request.messages if message.role != "system"]
    until = memory.get("until")
    end = next((index + 1 for index, message in enumerate(body) if until and message.id == until), 0)
    return head, body[:end], body[end:]


def _rest(request: ModelRequest, memory: Mapping[str, Json]) -> list[Message]:
    return _split(request, memory)[2]


def _shown(request: ModelRequest, memory: Mapping[str, Json]) -> ModelRequest:
    """The request as the model sees it: one summary, as a user message, in place of what it covers."""
    if not memory.get("summary"):
        return request
    head, covered, rest = _split(request, memory)
    if not covered:
        return request
    notes = user(f"Notes on the earlier part of this conversation:\n{memory['summary']}")
    pinned = _without_reasoning(pinned_groups(covered))
    return request.replace(messages=(*head, notes, *pinned, *_without_old_reasoning(rest)))


def _without_old_reasoning(messages: Sequence[Message]) -> Iterator[Message]:
    """Reasoning of finished turns goes: it is bound to a conversation that is no longer sent (AC-95)."""
    last_turn = max((i for i, message in enumerate(messages) if message.role == "user"), default=0)
    yield from _without_reasoning(messages[:last_turn])
    yield from messages[last_turn:]


def _without_reasoning(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        blocks = tuple(block for block in message.blocks if block.kind != "reasoning")
        if len(blocks) == len(message.blocks):
            yield message
        elif blocks:
            yield message.replace(blocks=blocks)


def _pieces(messages: Iterable[Message], tokens: int) -> Iterator[str]:
    """The messages as plain text, in pieces that a summarizer can read."""
    lines: list[str] = []
    size = 0.0
    for message in messages:
        line = _plain(message)
        if lines and size + estimate_text(line) > tokens:
            yield "\n".join(lines)
            lines, size = [], 0.0
        lines.append(line)
        size += estimate_text(line)
    if lines:
        yield "\n".join(lines)


def _plain(message: Message) -> str:
    """A message as text: no reasoning, no signatures, no blocks (D8, D13)."""
    parts: list[str] = []
    for block in message.blocks:
        if block.kind == "tool_call":
            parts.append(f"calls {block.name} with {block.raw_args}")
        elif block.kind == "tool_result":
            parts.append(f"{block.name} {'failed' if block.is_error else 'answered'}: {block.text}")
        elif block.kind != "reasoning":
            parts.append(str(getattr(block, "text", "")))
    return f"{message.role}: " + " ".join(part for part in parts if part)


def _number(memory: Mapping[str, Json], key: str, otherwise: float) -> float:
    value: Any = memory.get(key, otherwise)
    return float(value) if isinstance(value, int | float) else otherwise
