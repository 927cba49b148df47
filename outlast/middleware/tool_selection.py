"""The question that a tool selector is asked, how its answer is read, and what a selection holds for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence

from outlast.errors import clean_text
from outlast.messages import Json, Message, ToolCallBlock, ToolResultBlock, system, user
from outlast.model import ModelRequest, ResponseFormat, ToolSpec

PROMPT = (
    "Choose the tools an assistant will need for the user's newest request in the conversation below. Choose what may "
    "well be needed on the way, too; leave out what has nothing to do with it. Answer with names from the list, the "
    "most useful first."
)

RECENT_MESSAGES = 12
RECENT_CHARACTERS = 1500
"""How much of the conversation the selector reads: the newest messages, each cut."""


def question(messages: Sequence[Message], choice: Sequence[ToolSpec], max_tools: int | None) -> ModelRequest:
    """Which of these tools the conversation needs, to be answered as JSON."""
    names: list[Json] = [spec.name for spec in choice]
    tools = {"type": "array", "items": {"type": "string", "enum": names}}
    schema = {"type": "object", "properties": {"tools": tools}, "required": ["tools"], "additionalProperties": False}
    listing = "\n".join(f"- {spec.name}: {spec.description}" for spec in choice)
    limit = "" if max_tools is None else f" Choose at most {max_tools}."
    talk = "\n".join(_lines(messages))
    return ModelRequest(
        messages=(system(f"{PROMPT}{limit}\n\nTools:\n{listing}"), user(f"Conversation:\n{talk}")),
        response_format=ResponseFormat(name="tool_selection", json_schema=schema),
    )


def chosen(text: str) -> list[str]:
    """The names in the selector's answer.

    Raises:
        ValueError: It is not the JSON that was asked for (D55).
    """
    answer: Json = json.loads(text)
    names = answer.get("tools") if isinstance(answer, dict) else None
    if not isinstance(names, list):
        raise ValueError("the selector's answer has no list of tools")
    return [name for name in names if isinstance(name, str)]


def turn_key(messages: Sequence[Message], choice: Sequence[ToolSpec]) -> str:
    """What a selection holds for: the newest user message and the tools there are."""
    last = next((message for message in reversed(messages) if message.role == "user"), None)
    asked = "" if last is None else f"{last.id}\n{last.text}"
    return hashlib.sha256("\n".join([*(spec.name for spec in choice), asked]).encode()).hexdigest()[:16]


def _lines(messages: Sequence[Message]) -> Iterator[str]:
    """The newest messages as plain text (D56)."""
    for message in [message for message in messages if message.role != "system"][-RECENT_MESSAGES:]:
        parts = [message.text]
        for block in message.blocks:
            if isinstance(block, ToolCallBlock):
                parts.append(f"calls {block.name} with {block.raw_args}")
            elif isinstance(block, ToolResultBlock):
                parts.append(f"{block.name} answered: {block.text}")
        yield clean_text(f"{message.role}: " + " ".join(part for part in parts if part), RECENT_CHARACTERS)
