"""The neutral message model: what a conversation is, whichever provider served it.

A message is an ordered tuple of blocks; the order of reasoning, text and calls is significant and is
never flattened. Everything is frozen. Arguments of a tool call are kept as the provider's own text
and parsed on demand, so that a replay to the provider is byte-identical and nobody can edit the
transcript through a shared dict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict with str keys."""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ResultStatus: TypeAlias = Literal["executed", "failed", "rejected", "cancelled", "emulated", "unknown"]


class Value(BaseModel):
    """A frozen value; ``replace`` gives a validated copy. Unknown fields are ignored: newer writers do no harm."""

    model_config = ConfigDict(frozen=True)

    def replace(self, **changes: object) -> Self:
        """A copy with some fields changed.

        Raises:
            TypeError: A name is not a field.
            pydantic.ValidationError: A value does not fit its field.
        """
        unknown = changes.keys() - type(self).model_fields.keys()
        if unknown:
            known = ", ".join(type(self).model_fields)
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}; its fields: {known}")
        return type(self)(**{**self.__dict__, **changes})


class Block(Value):
    """What every block has. ``extra`` is JSON text: the provider's own fields that have no neutral name.

    Empty fields are left out of the JSON (``exclude_if``); ``kind`` never is.
    """

    extra: str | None = None


class TextBlock(Block):
    """Text. ``citations``: the provider's own records as JSON text; ``phase``: OpenAI's commentary/final_answer."""

    kind: Literal["text"] = "text"
    text: str
    citations: tuple[str, ...] = Field(default=(), exclude_if=not_)
    phase: str | None = None
    signature: str | None = None


class ReasoningBlock(Block):
    """A model's reasoning. Signatures and encrypted parts are valid unmodified, in order, at their own provider."""

    kind: Literal["reasoning"] = "reasoning"
    text: str = Field(default="", exclude_if=not_)
    summary: tuple[str, ...] = Field(default=(), exclude_if=not_)
    signature: str | None = None
    encrypted: str | None = None
    redacted: str | None = None
    item_id: str | None = None


class ToolCallBlock(Block):
    """A call the model asks for.

    Attributes:
        id: Ours: unique in the run, the same in every replay.
        raw_args: The argument text exactly as the provider sent it; may be invalid JSON.
        provider_call_id, provider_item_id: The provider's ids, sent back to the same provider.
        signature: Gemini's thought signature on the call part.
    """

    kind: Literal["tool_call"] = "tool_call"
    id: str = ""
    name: str
    raw_args: str = "{}"
    provider_call_id: str | None = None
    provider_item_id: str | None = None
    signature: str | None = None

    def parse_args(self) -> tuple[dict[str, Json], str | None]:
        """A fresh dict of arguments and None, or an empty dict and why the text is not a JSON object."""
        try:
            args = json.loads(self.raw_args or "{}")
        except (ValueError, RecursionError) as error:
            return {}, f"the arguments are not valid JSON ({error})"
        if not isinstance(args, dict):
            return {}, f"the arguments must be a JSON object, not {type(args).__name__}"
        return args, None


class MediaBlock(Block):
    """An image, audio clip or file. ``source`` tells what ``data`` is: base64, a URL, or a provider's file id."""

    kind: Literal["media"] = "media"
    media: Literal["image", "audio", "file"] = "image"
    source: Literal["base64", "url", "file_id"] = "base64"
    data: str
    mime_type: str | None = None
    name: str | None = None


class RefusalBlock(Block):
    """The model declined."""

    kind: Literal["refusal"] = "refusal"
    text: str = ""
    category: str | None = None


class OpaqueBlock(Block):
    """Anything of a provider that has no neutral form, as JSON text; sent back only to the same provider."""

    kind: Literal["opaque"] = "opaque"
    provider: str
    raw: str


class ToolResultBlock(Block):
    """The one answer to a call.

    Attributes:
        call_id: The :class:`ToolCallBlock`'s own ``id``.
        status: What really happened; ``unknown`` means a lost worker may or may not have done it.
        executed_name, executed_args: What ran, as JSON text, where a hook or a person had edited the call.
    """

    kind: Literal["tool_result"] = "tool_result"
    call_id: str
    name: str
    content: tuple[TextBlock | MediaBlock, ...] = ()
    is_error: bool = Field(default=False, exclude_if=not_)
    status: ResultStatus = Field(default="executed", exclude_if="executed".__eq__)
    executed_name: str | None = None
    executed_args: str | None = None

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, TextBlock))


AnyBlock: TypeAlias = Annotated[
    TextBlock | ReasoningBlock | ToolCallBlock | MediaBlock | RefusalBlock | OpaqueBlock | ToolResultBlock,
    Field(discriminator="kind"),
]


class Origin(Value):
    """Where an assistant message came from; decides which signatures and ids may be sent back."""

    provider: str
    api: str = ""
    model: str = ""
    response_id: str | None = None


class Message(Value):
    """One entry of a transcript. A tool message holds exactly one result.

    Blocks are told apart by ``kind``: in workflow code the sandbox makes every ``isinstance`` a thousand times dearer.

    Attributes:
        pinned: Summaries and context edits leave this message alone.
        created_at: Workflow time, UTC.
    """

    role: Role
    blocks: tuple[AnyBlock, ...] = ()
    id: str = Field(default="", exclude_if=not_)
    pinned: bool = Field(default=False, exclude_if=not_)
    created_at: datetime | None = None
    origin: Origin | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined; no reasoning, no results."""
        return "".join(block.text for block in self.blocks if block.kind == "text")

    @property
    def tool_calls(self) -> tuple[ToolCallBlock, ...]:
        """The calls, in order."""
        return tuple(block for block in self.blocks if block.kind == "tool_call")

    @property
    def tool_results(self) -> tuple[ToolResultBlock, ...]:
        """The results, in order."""
        return tuple(block for block in self.blocks if block.kind == "tool_result")

    @property
    def is_signed(self) -> bool:
        """Whether it carries reasoning or calls that are only valid unmodified, at the provider that signed them."""
        return any(
            (block.kind == "reasoning" and bool(block.signature or block.encrypted or block.redacted))
            or (block.kind == "tool_call" and bool(block.signature))
            for block in self.blocks
        )


def system(text: str) -> Message:
    """A system message."""
    return Message(role="system", blocks=(TextBlock(text=text),))


def user(content: str | Sequence[AnyBlock], *, pinned: bool = False) -> Message:
    """A user message from text or blocks."""
    return Message(role="user", blocks=_blocks(content), pinned=pinned)


def assistant(content: str | Sequence[AnyBlock]) -> Message:
    """An assistant message from text or blocks."""
    return Message(role="assistant", blocks=_blocks(content))


def tool_message(result: ToolResultBlock) -> Message:
    """The tool message that carries one result."""
    return Message(role="tool", blocks=(result,))


def image(
    data: str, *, mime_type: str | None = None, source: Literal["base64", "url", "file_id"] = "base64"
) -> MediaBlock:
    """An image block; ``data`` is base64, a URL or a file id, as ``source`` says."""
    return MediaBlock(media="image", source=source, data=data, mime_type=mime_type)


def well_formed(text: str) -> str:
    """The text without lone surrogates, which no payload can carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _blocks(content: str | Sequence[AnyBlock]) -> tuple[AnyBlock, ...]:
    return (TextBlock(text=well_formed(content)),) if isinstance(content, str) else tuple(content)


_MESSAGES = TypeAdapter(tuple[Message, ...])


def dump_messages(messages: Sequence[Message]) -> bytes:
    """Messages as a JSON array, empty fields left out; :func:`load_messages` gives equal messages back."""
    return _MESSAGES.dump_json(tuple(messages), exclude_none=True)


def load_messages(data: bytes | str | Iterable[Mapping[str, Json]]) -> tuple[Message, ...]:
    """Messages from JSON text, or from the already decoded array.

    Raises:
        pydantic.ValidationError: It is not an array of messages; the error names the place.
    """
    if isinstance(data, bytes | str):
        return _MESSAGES.validate_json(data)
    return _MESSAGES.validate_python(list(data))


def sequence_fault(messages: Sequence[Message]) -> str | None:
    """Why no provider would take this conversation, or None if it is sound.

    Rules: every call has exactly one result, directly after the message that made it and before any
    other message; no result without its call; call ids are unique; roles carry only their own blocks.
    """
    seen: set[str] = set()
    open_calls: dict[str, str] = {}
    for index, message in enumerate(messages):
        place = f"message {index} ({message.role})"
        if message.role != "tool" and open_calls:
            return f"{place} comes before the result of call {next(iter(open_calls))!r}"
        results = 0
        for block in message.blocks:
            if block.kind == "tool_call":
                if message.role != "assistant":
                    return f"{place} holds a tool call; only assistant messages may"
                if not block.id or block.id in seen:
                    return f"{place}: call id {block.id!r} of {block.name!r} is empty or used twice"
                seen.add(block.id)
                open_calls[block.id] = block.name
            elif block.kind == "tool_result":
                results += 1
                if message.role != "tool":
                    return f"{place} holds a tool result; only tool messages may"
                if open_calls.pop(block.call_id, None) is None:
                    return f"{place}: the result for {block.call_id!r} answers no open call"
        if message.role == "tool" and results != 1:
            return f"{place} must hold exactly one result"
    return f"call {next(iter(open_calls))!r} has no result" if open_calls else None


def pinned_groups(messages: Sequence[Message]) -> list[Message]:
    """The pinned messages, and with each what it cannot stand without: its results, or its call (AC-96)."""
    ids = {result.call_id for message in messages if message.pinned for result in message.tool_results}
    callers = [
        message
        for message in messages
        if message.tool_calls and (message.pinned or any(call.id in ids for call in message.tool_calls))
    ]
    ids |= {call.id for message in callers for call in message.tool_calls}
    stays = {id(message) for message in callers}
    return [
        message
        for message in messages
        if message.pinned or id(message) in stays or any(result.call_id in ids for result in message.tool_results)
    ]


def repair_sequence(messages: Sequence[Message]) -> tuple[Message, ...]:
    """A sound conversation from one that broke off: open calls get an error result, orphan results go (D11).

    A result that stands later than directly after its call is moved there. Sound input comes back as it is.
    """
    if sequence_fault(messages) is None:
        return messages if isinstance(messages, tuple) else tuple(messages)
    results = {r.call_id: m for m in reversed(messages) for r in m.tool_results if m.role == "tool"}
    repaired: list[Message] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            continue
        blocks = tuple(b for b in message.blocks if _keeps(b, message.role, seen))
        repaired.append(message if blocks == message.blocks else message.replace(blocks=blocks))
        repaired.extend(_answer(block, results) for block in blocks if isinstance(block, ToolCallBlock))
    return tuple(repaired)


def _keeps(block: Block, role: str, seen: set[str]) -> bool:
    if isinstance(block, ToolResultBlock):
        return False
    if isinstance(block, ToolCallBlock):
        fresh = role == "assistant" and bool(block.id) and block.id not in seen
        seen.add(block.id)
        return fresh
    return True


def _answer(call: ToolCallBlock, results: Mapping[str, Message]) -> Message:
    found = results.get(call.id)
    if found is not None:
        result = next(r for r in found.tool_results if r.call_id == call.id)
        return found if len(found.blocks) == 1 else found.replace(blocks=(result,))
    text = f"The call to {call.name} did not complete: the conversation broke off before its result."
    return tool_message(
        ToolResultBlock(
            call_id=call.id, name=call.name, content=(TextBlock(text=text),), is_error=True, status="cancelled"
        )
    )
