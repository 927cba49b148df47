"""An estimate of how many tokens a request has, without a tokenizer; always an estimate, and labelled so.

Four characters of alphabetic text are about a token, a CJK character is about one, an image has a fixed price whatever
its bytes. Middlewares correct the estimate by what the provider last reported.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable

from outlast.growing import grown
from outlast.messages import AnyBlock, Message
from outlast.model import ModelRequest, ToolSpec

CHARS_PER_TOKEN = 4.0
WIDE_TOKENS = 0.75
IMAGE_TOKENS = 1000
FILE_TOKENS = 3000
MESSAGE_OVERHEAD = 3

# CJK ideographs, kana, hangul, and other scripts that tokenizers cut into pieces of about a character.
_WIDE = re.compile("[\u0e00-\u0e7f\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")


def estimate_text(text: str) -> float:
    """Tokens of a text."""
    wide = 0 if text.isascii() else len(_WIDE.findall(text))
    return wide * WIDE_TOKENS + (len(text) - wide) / CHARS_PER_TOKEN


def estimate_messages(messages: Iterable[Message]) -> int:
    """Tokens of messages: texts, calls, results, media; signatures and encrypted parts do not count."""
    return sum(math.ceil(_message(message)) + MESSAGE_OVERHEAD for message in messages)


def estimate_tools(tools: Iterable[ToolSpec]) -> int:
    """Tokens of tool schemas."""
    return sum(
        math.ceil(estimate_text(tool.name + tool.description + json.dumps(tool.parameters))) + MESSAGE_OVERHEAD
        for tool in tools
    )


def estimate_request(request: ModelRequest) -> int:
    """Tokens of a whole request: system message, conversation, tools and response format."""
    schema = json.dumps(request.response_format.json_schema) if request.response_format is not None else ""
    messages = grown(estimate_request, request.messages, 0, lambda so_far, new: so_far + estimate_messages(new))
    return messages + estimate_tools(request.tools) + math.ceil(estimate_text(schema))


def _message(message: Message) -> float:
    return sum(_block(block) for block in message.blocks)


def _block(block: AnyBlock) -> float:
    match block.kind:
        case "text" | "refusal":
            return estimate_text(block.text)
        case "reasoning":
            return estimate_text(block.text + "".join(block.summary))
        case "tool_call":
            return estimate_text(block.name + block.raw_args)
        case "tool_result":
            return estimate_text(block.name) + sum(_block(part) for part in block.content)
        case "media":
            return IMAGE_TOKENS if block.media == "image" else FILE_TOKENS
        case "opaque":
            return estimate_text(block.raw)
