"""Any sound conversation: stored and loaded unchanged, and fit for every provider."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.messages import (
    AnyBlock,
    Json,
    MediaBlock,
    Message,
    OpaqueBlock,
    Origin,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    dump_messages,
    load_messages,
    sequence_fault,
)
from outlast.model import ModelRequest
from outlast.models._wire import encode_body, mend

from .oracle import check_body
from .providers import PROVIDERS

_TEXT = st.text(max_size=12)
_SECRET = st.binary(min_size=3, max_size=6).map(lambda raw: base64.b64encode(raw).decode()) | st.none()
_ORIGIN = st.sampled_from(
    [
        None,
        Origin(provider="openai", api="chat"),
        Origin(provider="openai", api="responses"),
        Origin(provider="anthropic", api="messages"),
        Origin(provider="gemini", api="generateContent"),
        Origin(provider="elsewhere"),
    ]
)
_ARGS = (
    st.dictionaries(_TEXT, st.none() | st.integers() | st.floats() | _TEXT, max_size=3).map(json.dumps)
    | _TEXT
    | st.sampled_from(["", "{", "[1]", '"x"', '{"a":NaN}', '{"\\ud800": 1}', "{ }"])
)
_IMAGE = st.just(MediaBlock(data="aGk=", mime_type="image/png"))
_SAID: st.SearchStrategy[AnyBlock] = st.one_of(
    st.builds(TextBlock, text=_TEXT, signature=_SECRET, phase=st.sampled_from([None, "commentary"])),
    st.builds(ReasoningBlock, text=_TEXT, signature=_SECRET, encrypted=_SECRET, item_id=st.just("rs_1")),
    st.builds(ReasoningBlock, redacted=_SECRET),
    st.builds(RefusalBlock, text=_TEXT),
    st.builds(OpaqueBlock, provider=st.just("elsewhere"), raw=st.just('{"type":"LEAK"}')),
    _IMAGE,
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """A sound conversation of a few turns, whoever made them."""
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(Message(role="system", blocks=(TextBlock(text=draw(_TEXT)),)))
    for turn in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            messages.append(
                Message(role="user", blocks=tuple(draw(st.lists(st.builds(TextBlock, text=_TEXT) | _IMAGE))))
            )
        calls = [
            ToolCallBlock(
                id=f"s{turn:04}.tool.{number}",
                name=draw(st.sampled_from(["get_weather", "get_time"])),
                raw_args=draw(_ARGS),
                provider_call_id=draw(st.sampled_from([None, "call_0", f"call_{turn}"])),
                provider_item_id=draw(st.sampled_from([None, "fc_0"])),
                signature=draw(_SECRET),
            )
            for number in range(draw(st.integers(0, 3)))
        ]
        blocks: list[AnyBlock] = [*draw(st.lists(_SAID, max_size=3)), *calls]
        messages.append(Message(role="assistant", blocks=tuple(blocks), origin=draw(_ORIGIN)))
        for call in draw(st.permutations(calls)):
            content = tuple(draw(st.lists(st.builds(TextBlock, text=_TEXT) | _IMAGE, max_size=2)))
            result = ToolResultBlock(call_id=call.id, name=call.name, content=content, is_error=draw(st.booleans()))
            messages.append(Message(role="tool", blocks=(result,)))
    return (*messages, Message(role="user", blocks=(TextBlock(text=draw(_TEXT)),)))


@settings(max_examples=150, deadline=None)
@given(conversations())
def test_a_conversation_is_the_same_after_it_was_stored(messages: tuple[Message, ...]) -> None:
    assert sequence_fault(messages) is None
    assert load_messages(dump_messages(messages)) == messages


@pytest.mark.parametrize("provider", PROVIDERS)
@settings(max_examples=150, deadline=None)
@given(messages=conversations())
def test_a_conversation_fits_every_provider(provider: str, messages: tuple[Message, ...]) -> None:
    body = PROVIDERS[provider]("http://127.0.0.1").render(ModelRequest(messages=messages))
    text = encode_body(body)
    sent = mend(json.loads(text))
    check_body(provider, sent)
    assert b"LEAK" not in text
    calls, results = _PAIRS[provider](sent)
    assert len(set(calls)) == len(calls) or None in calls
    assert results == calls


def _chat(body: Json) -> tuple[list[Any], list[Any]]:
    calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
    return calls, [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]


def _responses(body: Json) -> tuple[list[Any], list[Any]]:
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    return calls, [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]


def _anthropic(body: Json) -> tuple[list[Any], list[Any]]:
    roles = [turn["role"] for turn in body["messages"]]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    blocks = [block for turn in body["messages"] for block in turn["content"]]
    assert all(block["text"].strip() for block in blocks if block["type"] == "text")
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return calls, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


def _gemini(body: Json) -> tuple[list[Any], list[Any]]:
    assert body["contents"][0]["role"] == "user"
    parts = [part for content in body["contents"] for part in content["parts"]]
    calls = [part["functionCall"].get("id") for part in parts if "functionCall" in part]
    return calls, [part["functionResponse"].get("id") for part in parts if "functionResponse" in part]


_PAIRS: dict[str, Any] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
