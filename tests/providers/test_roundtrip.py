"""An answer goes into the transcript and back to its provider: signatures, ids and arguments as they came."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from outlast.messages import (
    Json,
    Message,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    dump_messages,
    load_messages,
    tool_message,
    user,
)
from outlast.model import ModelRequest
from outlast.models._wire import encode_body

from .answers import ALL, ANSWERS
from .fake_server import FakeServer, json_reply, sse_reply
from .oracle import check_body
from .providers import PROVIDERS, hello
from .test_answers import HI


def localised(message: Message) -> Message:
    """The message as the engine stores it: with ids of our own."""
    numbers = iter(range(1, 100))
    return message.replace(
        blocks=tuple(
            block.replace(id=f"s0001.tool.{next(numbers)}") if isinstance(block, ToolCallBlock) else block
            for block in message.blocks
        )
    )


def conversation(message: Message) -> tuple[Message, ...]:
    """A question, the answer, the results of its calls, and another question."""
    results = (
        tool_message(ToolResultBlock(call_id=call.id, name=call.name, content=(TextBlock(text="ok"),)))
        for call in message.tool_calls
    )
    return (user("Hi"), message, *results, user("Go on"))


async def second_request(server: FakeServer, provider: str, name: str) -> Json:
    """The body of the request that follows an answer; the transcript was stored and loaded in between."""
    model = PROVIDERS[provider](server.url)
    server.answer(json_reply(ANSWERS[provider][name]), hello(provider))
    completion = await model.complete(HI)
    stored = conversation(localised(completion.message))
    assert load_messages(dump_messages(stored)) == stored
    await model.complete(ModelRequest(messages=load_messages(dump_messages(stored))))
    return server.received[1].json


def _chat(answer: Json, body: Json) -> tuple[Json, Json]:
    message = answer["choices"][0]["message"]
    sent = next(each for each in body["messages"] if each["role"] == "assistant")
    calls = {"tool_calls": message["tool_calls"]} if "tool_calls" in message else {}
    rest = {name: message[name] for name in ("refusal", "reasoning_content") if message.get(name)}
    return sent, {"role": "assistant", "content": message["content"]} | calls | rest


def _responses(answer: Json, body: Json) -> tuple[Json, Json]:
    expected = []
    for item in answer["output"]:
        kept = dict(item)
        if item["type"] == "function_call":
            del kept["status"]
        if item["type"] == "message":
            kept["content"] = [{n: v for n, v in part.items() if n != "logprobs"} for part in item["content"]]
        expected.append(kept)
    if answer["status"] == "incomplete" and expected and expected[-1]["type"] == "reasoning":
        expected.pop()
    return body["input"][1 : 1 + len(expected)], expected


def _anthropic(answer: Json, body: Json) -> tuple[Json, Json]:
    turns = [turn["content"] for turn in body["messages"] if turn["role"] == "assistant"]
    return (turns[0] if turns else []), answer["content"]


def _gemini(answer: Json, body: Json) -> tuple[Json, Json]:
    turns = [content["parts"] for content in body["contents"] if content["role"] == "model"]
    candidate = (answer.get("candidates") or [{"content": {"parts": []}}])[0]
    expected = [dict(part) for part in candidate["content"]["parts"]]
    calls = [part for part in expected if "functionCall" in part]
    for part in calls:
        part["functionCall"] = {"args": {}} | part["functionCall"]
    if calls and not any("thoughtSignature" in part for part in calls):
        calls[0]["thoughtSignature"] = "skip_thought_signature_validator"
    return (turns[0] if turns else []), expected


_COMPARE: dict[str, Any] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


@pytest.mark.parametrize(("provider", "name"), ALL)
async def test_an_answer_goes_back_to_its_provider_as_it_came(server: FakeServer, provider: str, name: str) -> None:
    """M2, M3, M4: signatures where they were, items in order; Gemini's stand-in only where a signature is lost."""
    body = await second_request(server, provider, name)
    sent, expected = _COMPARE[provider](ANSWERS[provider][name], body)
    assert sent == expected
    if name != "reasoning of a local server":
        check_body(provider, body)


@pytest.mark.parametrize("target", PROVIDERS)
@pytest.mark.parametrize(("provider", "name"), ALL)
async def test_an_answer_may_go_on_at_any_other_provider(
    server: FakeServer, provider: str, name: str, target: str
) -> None:
    answer = PROVIDERS[provider](server.url).parse(ANSWERS[provider][name])
    body = PROVIDERS[target](server.url).render(ModelRequest(messages=conversation(localised(answer.message))))
    text = encode_body(body).decode()
    if target == provider:
        return
    check_body(target, json.loads(text))
    for secret in ("gAAAAAB", "EqQB", "CnQB", "EmwK", "srvtoolu", "rs_1", "msg_1", "fc_a", "call_a", "toolu_a"):
        assert secret not in text


async def test_streamed_argument_text_goes_back_byte_by_byte(server: FakeServer) -> None:
    raw = '{ "city":"Z\\u00fcrich", "n":1.0 }'
    events: Sequence[Json] = [
        {"type": "message_start", "message": {"id": "m", "usage": {}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f"},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": raw}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
    ]
    server.answer(sse_reply("".join(f"data: {json.dumps(event)}\n\n" for event in events)), hello("anthropic"))
    model = PROVIDERS["anthropic"](server.url)
    completion = await model.complete(HI, lambda delta: None)
    await model.complete(ModelRequest(messages=conversation(localised(completion.message))))
    assert f'"id":"toolu_1","name":"f","input":{raw}'.encode() in server.received[1].body


def test_reasoning_whose_item_lost_its_id_is_left_out() -> None:
    """M3: a reasoning item and the one that follows it travel together, or the first stays at home."""
    model = PROVIDERS["openai_responses"]("http://127.0.0.1")
    message = localised(model.parse(ANSWERS["openai_responses"]["commentary, reasoning and an answer"]).message)
    first, thought, answer = message.blocks
    edited = message.replace(blocks=(first, thought, answer.replace(text="[redacted]", extra=None)))
    items = model.render(ModelRequest(messages=conversation(edited)))["input"]
    assert [item.get("type") for item in items] == ["message", "message", None, "message"]
    assert items[2] == {"role": "assistant", "content": "[redacted]", "phase": "final_answer"}
    check_body("openai_responses", model.render(ModelRequest(messages=conversation(edited))))


def test_reasoning_whose_call_was_removed_is_left_out() -> None:
    """M3, M4."""
    model = PROVIDERS["openai_responses"]("http://127.0.0.1")
    message = model.parse(ANSWERS["openai_responses"]["reasoning and a call"]).message
    alone = message.replace(blocks=message.blocks[:1])
    items = model.render(ModelRequest(messages=conversation(alone)))["input"]
    assert [item["type"] for item in items] == ["message", "message"]


def test_ids_that_a_provider_used_twice_are_told_apart() -> None:
    model = PROVIDERS["anthropic"]("http://127.0.0.1")
    answer = model.parse(ANSWERS["anthropic"]["text and a call"]).message
    first = answer.replace(blocks=(answer.tool_calls[0].replace(id="a"),))
    second = answer.replace(blocks=(answer.tool_calls[0].replace(id="b"),))
    turns = model.render(ModelRequest(messages=conversation(first) + conversation(second)[1:]))["messages"]
    blocks = [block for turn in turns for block in turn["content"]]
    assert [block["id"] for block in blocks if block["type"] == "tool_use"] == ["toolu_a", "toolu_a_2"]
    assert [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"] == ["toolu_a", "toolu_a_2"]


def test_signatures_do_not_go_to_another_api_of_the_same_provider() -> None:
    answer = PROVIDERS["openai_responses"]("").parse(ANSWERS["openai_responses"]["reasoning and a call"])
    body = PROVIDERS["openai_chat"]("").render(ModelRequest(messages=conversation(localised(answer.message))))
    assert "gAAAAAB" not in json.dumps(body)
    assert body["messages"][1]["tool_calls"][0]["id"].startswith("s0001_tool_1")


def test_each_gemini_call_keeps_its_own_signature_and_only_a_lost_one_gets_a_stand_in() -> None:
    """M2."""
    model = PROVIDERS["gemini"]("http://127.0.0.1")
    parts: list[Json] = [
        {"functionCall": {"name": "f", "args": {"n": n}}, "thoughtSignature": f"c2lnMQ{n}"} for n in range(2)
    ]
    candidate = {"content": {"parts": parts}, "finishReason": "STOP"}
    message = localised(model.parse({"candidates": [candidate], "modelVersion": "gemini-3-pro"}).message)
    sent = model.render(ModelRequest(messages=conversation(message)))["contents"][1]["parts"]
    assert [part["thoughtSignature"] for part in sent] == ["c2lnMQ0", "c2lnMQ1"]
    lost = message.replace(blocks=tuple(block.replace(signature=None) for block in message.blocks))
    [first, second] = model.render(ModelRequest(messages=conversation(lost)))["contents"][1]["parts"]
    assert first["thoughtSignature"] == "skip_thought_signature_validator"
    assert "thoughtSignature" not in second
