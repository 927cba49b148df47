"""What comes back: every answer, whole and streamed, read by us and by the official SDKs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast import models
from outlast.messages import Json, Message, OpaqueBlock, ReasoningBlock, RefusalBlock, ToolCallBlock, user
from outlast.model import Completion, Delta, Finish, ModelRequest
from outlast.models._wire import mend
from outlast.usage import Usage

from .answers import ALL, ANSWERS, LONG
from .fake_server import FakeServer, Reply, json_reply, running, sse_reply
from .providers import PROVIDERS
from .sdks import ask_sdk
from .streams import stream_text

HI = ModelRequest(messages=(user("Hi"),))


async def ask(server: FakeServer, provider: str, name: str, *, stream: bool) -> tuple[Completion, list[Delta]]:
    """Our reading of an answer."""
    answer = ANSWERS[provider][name]
    server.answer(sse_reply(stream_text(provider, answer)) if stream else json_reply(answer))
    deltas: list[Delta] = []
    completion = await PROVIDERS[provider](server.url).complete(HI, deltas.append if stream else None)
    return completion, deltas


@pytest.mark.parametrize(("provider", "name"), ALL)
async def test_a_streamed_answer_equals_the_whole_answer(server: FakeServer, provider: str, name: str) -> None:
    whole, _ = await ask(server, provider, name, stream=False)
    streamed, deltas = await ask(server, provider, name, stream=True)
    assert streamed == whole
    texts = "".join(delta.text for delta in deltas if delta.kind == "text")
    assert texts == whole.message.text


@pytest.mark.parametrize(("provider", "name"), ALL)
async def test_the_deltas_of_calls_spell_their_arguments(server: FakeServer, provider: str, name: str) -> None:
    completion, deltas = await ask(server, provider, name, stream=True)
    for index, call in enumerate(completion.message.tool_calls):
        mine = [delta for delta in deltas if delta.kind == "tool_call" and delta.call_index == index]
        assert {delta.tool for delta in mine} == {call.name}
        assert "".join(delta.text for delta in mine) in (call.raw_args, "")


SDK_REFUSES = (("openai_chat", "cut off in a call"), ("openai_chat", "filtered (synthetic)"))
"""Streams that the SDK's accumulator answers with an exception of its own."""


@pytest.mark.parametrize(("provider", "name"), ALL)
async def test_the_official_sdk_reads_the_same_message(server: FakeServer, provider: str, name: str) -> None:
    await _compare_with_sdk(server, provider, name, stream=False)


@pytest.mark.parametrize(("provider", "name"), [each for each in ALL if each not in SDK_REFUSES])
async def test_the_official_sdk_reads_the_same_message_in_a_stream(
    server: FakeServer, provider: str, name: str
) -> None:
    await _compare_with_sdk(server, provider, name, stream=True)


async def _compare_with_sdk(server: FakeServer, provider: str, name: str, *, stream: bool) -> None:
    ours, _ = await ask(server, provider, name, stream=stream)
    theirs = await ask_sdk(provider, server.url, stream=stream)
    read = PROVIDERS[provider](server.url).parse(mend(theirs))
    assert _essence(read) == _essence(ours)


def _essence(completion: Completion) -> Json:
    """What both readings must share: the SDKs fill in their own defaults inside opaque records."""
    blocks = [
        block.replace(extra=None, citations=())
        if block.kind == "text"
        else OpaqueBlock(provider=block.provider, raw="")
        if isinstance(block, OpaqueBlock)
        else block
        for block in completion.message.blocks
    ]
    return blocks, completion.message.origin, completion.finish, completion.finish_raw, completion.usage


FINISHES: Sequence[tuple[str, str, Finish]] = [
    ("openai_chat", "text", "stop"),
    ("openai_chat", "parallel calls", "tool_use"),
    ("openai_chat", "cut off in a call", "length"),
    ("openai_chat", "refusal", "refusal"),
    ("openai_chat", "filtered (synthetic)", "content_filter"),
    ("openai_responses", "text", "stop"),
    ("openai_responses", "parallel calls", "tool_use"),
    ("openai_responses", "cut off in a call", "length"),
    ("openai_responses", "refusal", "refusal"),
    ("openai_responses", "filtered (synthetic)", "content_filter"),
    ("anthropic", "text", "stop"),
    ("anthropic", "parallel calls", "tool_use"),
    ("anthropic", "cut off", "length"),
    ("anthropic", "refusal (synthetic)", "refusal"),
    ("anthropic", "context full", "context_overflow"),
    ("anthropic", "paused turn", "pause"),
    ("gemini", "text", "stop"),
    ("gemini", "parallel calls", "tool_use"),
    ("gemini", "cut off", "length"),
    ("gemini", "stopped for safety", "content_filter"),
    ("gemini", "a blocked prompt", "content_filter"),
    ("gemini", "a malformed call (synthetic)", "error"),
]


@pytest.mark.parametrize(("provider", "name", "finish"), FINISHES)
async def test_the_finish_is_normalised(server: FakeServer, provider: str, name: str, finish: Finish) -> None:
    completion, _ = await ask(server, provider, name, stream=False)
    assert completion.finish == finish
    assert completion.finish_raw


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_usage_counts_all_input_and_all_output_whatever_the_provider(server: FakeServer, provider: str) -> None:
    completion, _ = await ask(server, provider, "text", stream=True)
    written = {"openai_responses": 10, "anthropic": 10}.get(provider, 0)
    assert completion.usage == Usage(
        input_tokens=100,
        cached_input_tokens=64,
        cache_write_tokens=written,
        output_tokens=50,
        reasoning_tokens=20,
        model_calls=1,
    )


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_text_with_line_separators_and_emoji_arrives_whole(server: FakeServer, provider: str) -> None:
    completion, _ = await ask(server, provider, "text", stream=True)
    assert completion.message.text == LONG


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_empty_answer_is_a_message_without_blocks(server: FakeServer, provider: str) -> None:
    completion, _ = await ask(server, provider, "empty", stream=False)
    assert completion.message.blocks == ()
    assert completion.message.role == "assistant"


async def test_broken_arguments_survive_as_text(server: FakeServer) -> None:
    completion, _ = await ask(server, "openai_chat", "arguments that are no JSON", stream=True)
    (call,) = completion.message.tool_calls
    assert call.raw_args == '{"city": '
    assert call.parse_args()[1] is not None


async def test_a_partial_call_is_kept_for_the_loop_to_decide(server: FakeServer) -> None:
    completion, _ = await ask(server, "openai_responses", "cut off in a call", stream=True)
    assert completion.finish == "length"
    assert [call.raw_args for call in completion.message.tool_calls] == ['{"city": "Zü']


async def test_calls_without_ids_get_ids_that_are_the_same_for_the_same_answer(server: FakeServer) -> None:
    first, _ = await ask(server, "gemini", "calls without ids", stream=False)
    again, _ = await ask(server, "gemini", "calls without ids", stream=True)
    ids = [call.id for call in first.message.tool_calls]
    assert len(set(ids)) == 2
    assert all(ids)
    assert first == again
    assert [call.provider_call_id for call in first.message.tool_calls] == [None, None]


async def test_a_refusal_carries_its_category(server: FakeServer) -> None:
    completion, _ = await ask(server, "anthropic", "refusal (synthetic)", stream=True)
    assert completion.message.blocks[-1] == RefusalBlock(text="Not allowed.", category="cyber")


async def test_reasoning_that_is_not_shown_keeps_its_signature(server: FakeServer) -> None:
    completion, _ = await ask(server, "anthropic", "thinking that is not shown", stream=True)
    hidden, redacted, _ = completion.message.blocks
    assert hidden == ReasoningBlock(signature="EqQBhidden==")
    assert redacted == ReasoningBlock(redacted="EmwKAh==")


async def test_a_surrogate_pair_that_was_cut_in_two_is_joined(server: FakeServer) -> None:
    chunk = 'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n'
    server.answer(sse_reply(chunk % ("\\ud83d", "null") + chunk % ("\\ude42 \\ud800", '"stop"')))
    deltas: list[Delta] = []
    completion = await PROVIDERS["openai_chat"](server.url).complete(HI, deltas.append)
    assert completion.message.text == "🙂 \ufffd"


async def test_a_local_server_may_leave_out_what_is_optional(server: FakeServer) -> None:
    call = {"function": {"name": "get_time", "arguments": {"zone": "UTC"}}}
    server.answer(json_reply({"choices": [{"message": {"tool_calls": [call]}}]}))
    completion = await PROVIDERS["openai_chat"](server.url).complete(HI)
    (read,) = completion.message.tool_calls
    assert (read.name, read.raw_args, read.provider_call_id) == ("get_time", '{"zone":"UTC"}', None)
    assert read.id
    assert completion.finish == "tool_use"


async def test_responses_events_without_indices_are_understood(server: FakeServer) -> None:
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
    events = [
        {"type": "response.output_item.added", "item": item | {"arguments": ""}},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}},
    ]
    server.answer(sse_reply("".join(f"data: {json.dumps(event)}\n\n" for event in events)))
    deltas: list[Delta] = []
    completion = await PROVIDERS["openai_responses"](server.url).complete(HI, deltas.append)
    assert [call.name for call in completion.message.tool_calls] == ["f"]
    assert [(delta.text, delta.tool) for delta in deltas] == [("", "f"), ("{}", "f")]


async def test_a_tool_block_that_starts_without_input_is_understood(server: FakeServer) -> None:
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f"}}
    events = [
        {"type": "message_start", "message": {"usage": {}}},
        start,
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a": 1}'}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    ]
    server.answer(sse_reply("".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events)))
    completion = await PROVIDERS["anthropic"](server.url).complete(HI, lambda delta: None)
    assert completion.message.blocks == (ToolCallBlock(id="t", name="f", raw_args='{"a": 1}', provider_call_id="t"),)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_may_be_cut_anywhere(provider: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ANSWERS[provider])))
    raw = stream_text(provider, ANSWERS[provider][name]).encode()
    if data.draw(st.booleans()):
        raw = raw.replace(b"\n", b"\r\n")
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=12)))
    chunks = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    async def whole_and_streamed() -> tuple[Message, Message]:
        async with running() as server:
            model = PROVIDERS[provider](server.url)
            server.answer(json_reply(ANSWERS[provider][name]))
            whole = await model.complete(HI)
            server.answer(Reply(chunks, content_type="text/event-stream; charset=utf-8"))
            streamed = await model.complete(HI, lambda delta: None)
            await models.close()
            return whole.message, streamed.message

    whole, streamed = asyncio.run(whole_and_streamed())
    assert streamed == whole
