"""What the provider formats share: ids, argument texts, media, and a JSON encoder that can carry raw text."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from outlast.errors import InvalidRequest
from outlast.messages import Json, MediaBlock, Message, TextBlock, ToolCallBlock, ToolResultBlock
from outlast.model import Delta, ModelRequest

T = TypeVar("T")

ERROR_PREFIX = "[error] "
"""Stands before the text of a failed result, where an API has no flag for it."""

OPENING = "(The beginning of this conversation was left out.)"
"""The user turn that is put before a conversation that would begin with an assistant."""

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class RawJson:
    """JSON text that goes into a body byte by byte as it is."""

    text: str


def encode_body(body: Mapping[str, Json]) -> bytes:
    """A body as compact UTF-8 JSON; :class:`RawJson` values are copied into it unchanged.

    Raises:
        InvalidRequest: A value has no JSON form (NaN, say).
    """
    raws: list[str] = []
    token = uuid.uuid4().hex

    def place(value: object) -> str:
        if not isinstance(value, RawJson):
            raise TypeError(f"{type(value).__name__} has no JSON form")
        raws.append(value.text)
        return token

    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=place)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"the request was not sent: {error}", error_class="InvalidBody") from None
    pieces = text.split(f'"{token}"')
    joined = "".join(piece + raw for piece, raw in zip(pieces, [*raws, ""], strict=True))
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", joined).encode()


def mend(value: T) -> T:
    """A decoded JSON value whose texts are valid Unicode: split surrogate pairs are joined, lone ones replaced."""
    if isinstance(value, str):
        if _SURROGATE.search(value):
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # type: ignore[return-value]  # a str
        return value
    if isinstance(value, dict):
        return {mend(key): mend(item) for key, item in value.items()}  # type: ignore[return-value]  # a dict
    if isinstance(value, list):
        return [mend(item) for item in value]  # type: ignore[return-value]  # a list
    return value


def piece(
    text: str, *, kind: Literal["text", "reasoning", "tool_call"] = "text", call_index: int = 0, tool: str = ""
) -> Delta:
    """A delta; half of a surrogate pair at its edge is replaced, the assembled answer has the whole."""
    return Delta(kind=kind, text=mend(text), call_index=call_index, tool=tool)


def dump(value: Json) -> str:
    """Compact JSON text, as providers send it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def load_extra(extra: str | None) -> dict[str, Json]:
    """The provider's own fields of a block."""
    fields = json.loads(extra) if extra else {}
    return fields if isinstance(fields, dict) else {}


def dump_extra(fields: Mapping[str, Json]) -> str | None:
    """The provider's own fields as a block keeps them: None for none, nulls left out."""
    kept = {name: value for name, value in fields.items() if value is not None}
    return dump(kept) if kept else None


def merged(body: Mapping[str, Json], extra: Mapping[str, Json]) -> dict[str, Json]:
    """The body with ``ModelSettings.extra`` laid over it; objects are merged, anything else is replaced."""
    result = dict(body)
    for name, value in extra.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def present(**fields: Json) -> dict[str, Json]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def object_args(call: ToolCallBlock) -> RawJson:
    """Arguments for an API that takes an object: the model's own text, or that text wrapped if it is no JSON object."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        sound = isinstance(json.loads(call.raw_args or "{}", parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        sound = False
    return RawJson((call.raw_args or "{}") if sound else dump({"invalid_json": call.raw_args}))


def answer_id(response_id: str | None, index: int) -> str:
    """An id for a call that came without one: the same for the same answer, unique between answers."""
    seed = f"{response_id}/{index}" if response_id else uuid.uuid4().hex
    return f"call_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"


def is_own(message: Message, provider: str, api: str) -> bool:
    """Whether the provider made this message itself, so that its signatures and ids may go back."""
    return message.origin is not None and (message.origin.provider, message.origin.api) == (provider, api)


def wire_ids(messages: Sequence[Message], provider: str, api: str, limit: int = 64) -> dict[str, str]:
    """The id that each call has on the wire, by our own id: the provider's, where it made the call.

    Providers take letters, digits, ``_`` and ``-`` up to a length; foreign ids are fitted, clashes are numbered.
    """
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for message in messages:
        own = is_own(message, provider, api)
        for call in message.tool_calls:
            wanted = (call.provider_call_id if own else None) or _fitted(call.id, limit)
            name, number = wanted, 2
            while name in taken:
                name, number = f"{wanted[: limit - 4]}_{number}", number + 1
            taken.add(name)
            ids[call.id] = name
    return ids


def _fitted(name: str, limit: int) -> str:
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if plain == name and len(name) <= limit:
        return name
    return f"{plain[: limit - 13]}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def in_call_order(messages: Sequence[Message]) -> list[Message]:
    """The conversation with the results of each turn in the order of its calls: some APIs match by position."""
    ordered: list[Message] = []
    places: dict[str, int] = {}
    for message in messages:
        ordered.append(message)
        if message.role == "assistant":
            places = {call.id: len(ordered) + index for index, call in enumerate(message.tool_calls)}
        elif message.role == "tool" and len(ordered) == max(places.values(), default=-1) + 1:
            start = min(places.values())
            ordered[start:] = sorted(ordered[start:], key=lambda each: places[each.tool_results[0].call_id])
    return ordered


def system_text(messages: Sequence[Message]) -> str:
    """The system messages, joined, for APIs that take them apart from the conversation."""
    return "\n\n".join(message.text for message in messages if message.role == "system" and message.text)


def result_text(result: ToolResultBlock) -> str:
    """A result for an API without an error flag."""
    return f"{ERROR_PREFIX}{result.text}" if result.is_error else result.text


def data_url(media: MediaBlock) -> str:
    """The URL of a block that has one, or its data as a URL."""
    return media.data if media.source == "url" else f"data:{mime_of(media)};base64,{media.data}"


def mime_of(media: MediaBlock) -> str:
    """The block's MIME type, or what its kind makes likely."""
    return media.mime_type or {"image": "image/png", "audio": "audio/wav", "file": "application/pdf"}[media.media]


def unsupported(provider: str, media: MediaBlock, instead: str) -> InvalidRequest:
    """The error for a block that an API cannot carry."""
    return InvalidRequest(
        f"the request was not sent: {provider} takes no {media.media} as {media.source}. Use {instead}.",
        provider=provider,
        error_class="UnsupportedMedia",
    )


def media_note(media: MediaBlock) -> str:
    """What stands for media where an API has no place for it."""
    return f"[{media.media}{f': {media.name}' if media.name else ''}]"


def private_texts(request: ModelRequest) -> tuple[str, ...]:
    """Every text of a conversation: none of it may show up in an exception."""
    return tuple(text for message in request.messages for text in _texts(message) if text)


def _texts(message: Message) -> Iterator[str]:
    for block in message.blocks:
        if isinstance(block, ToolResultBlock):
            yield from (part.text for part in block.content if isinstance(part, TextBlock))
        elif isinstance(block, ToolCallBlock):
            yield block.raw_args
        elif not isinstance(block, MediaBlock):
            yield getattr(block, "text", "")
