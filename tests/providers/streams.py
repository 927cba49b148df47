"""The same answers as streams of server-sent events, cut into small pieces as the providers do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from outlast.messages import Json

_PIECE = 5


def stream_text(provider: str, answer: Json) -> str:
    """An answer as the text of an event stream."""
    return "".join(_EVENTS[provider](answer))


def _event(payload: Json, name: str = "") -> str:
    line = f"event: {name}\n" if name else ""
    return f"{line}data: {json.dumps(payload, ensure_ascii=False)}\n\n"


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def _chat(answer: Json) -> Iterator[str]:
    head = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = answer["choices"][0]

    def chunk(delta: Json, finish: str | None = None) -> str:
        return _event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield ": keep-alive\n\n"
    yield chunk({"role": "assistant", "content": "" if choice["message"]["content"] is not None else None})
    for field in ("reasoning_content", "content", "refusal"):
        for piece in _pieces(choice["message"].get(field) or ""):
            yield chunk({field: piece})
    for index, call in enumerate(choice["message"].get("tool_calls") or ()):
        start = call | {"index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        yield chunk({"tool_calls": [start]})
        for piece in _pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    yield _event(head | {"choices": [], "usage": answer["usage"]})
    yield "data: [DONE]\n\n"


def _responses(answer: Json) -> Iterator[str]:
    number = 0

    def event(name: str, /, **payload: Json) -> str:
        nonlocal number
        number += 1
        return _event({"type": name, "sequence_number": number, **payload}, name)

    started = answer | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield event("response.created", response=started)
    for index, item in enumerate(answer["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        bare = item | {
            name: empty for name, empty in (("content", []), ("summary", []), ("arguments", "")) if name in item
        }
        yield event("response.output_item.added", output_index=index, item=bare)
        for piece in _pieces(item.get("arguments", "")):
            yield event("response.function_call_arguments.delta", delta=piece, **place)
        if "arguments" in item:
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield event("response.function_call_arguments.done", **done, **place)
        for number_of_part, part in enumerate(item.get("summary", ())):
            spot = place | {"summary_index": number_of_part}
            yield event("response.reasoning_summary_part.added", part=part | {"text": ""}, **spot)
            for piece in _pieces(part["text"]):
                yield event("response.reasoning_summary_text.delta", delta=piece, **spot)
            yield event("response.reasoning_summary_part.done", part=part, **spot)
        for number_of_part, part in enumerate(item.get("content", ())):
            spot = place | {"content_index": number_of_part}
            kind, field = ("output_text", "text") if "text" in part else ("refusal", "refusal")
            yield event("response.content_part.added", part=part | {field: ""}, **spot)
            for piece in _pieces(part[field]):
                yield event(f"response.{kind}.delta", delta=piece, logprobs=[], **spot)
            yield event(f"response.{kind}.done", **{field: part[field]}, logprobs=[], **spot)
            yield event("response.content_part.done", part=part, **spot)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{answer['status']}", response=answer)


def _anthropic(answer: Json) -> Iterator[str]:
    usage = answer["usage"] | {"output_tokens": 1}
    start = answer | {"content": [], "stop_reason": None, "usage": usage, "stop_details": None}
    yield _event({"type": "message_start", "message": start}, "message_start")
    yield _event({"type": "ping"}, "ping")
    streamed = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking")}
    for index, block in enumerate(answer["content"]):

        def delta(payload: Json, index: int = index) -> str:
            return _event({"type": "content_block_delta", "index": index, "delta": payload}, "content_block_delta")

        empty: dict[str, Json] = {"text": "", "thinking": "", "signature": "", "input": {}, "citations": None}
        bare = {name: empty.get(name, value) for name, value in block.items()}
        if block["type"] == "web_search_tool_result":
            bare = block
        yield _event({"type": "content_block_start", "index": index, "content_block": bare}, "content_block_start")
        kind, field = streamed.get(block["type"], ("", ""))
        for citation in block.get("citations") or ():
            yield delta({"type": "citations_delta", "citation": citation})
        for piece in _pieces(block.get(field, "")):
            yield delta({"type": kind, field: piece})
        if "signature" in block:
            yield delta({"type": "signature_delta", "signature": block["signature"]})
        if block.get("input"):
            yield delta({"type": "input_json_delta", "partial_json": ""})
            for piece in _pieces(json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))):
                yield delta({"type": "input_json_delta", "partial_json": piece})
        yield _event({"type": "content_block_stop", "index": index}, "content_block_stop")
    details = {"stop_details": answer["stop_details"]} if "stop_details" in answer else {}
    end = {"stop_reason": answer["stop_reason"], "stop_sequence": answer["stop_sequence"]} | details
    final = {name: answer["usage"][name] for name in ("output_tokens", "output_tokens_details")}
    yield _event({"type": "message_delta", "delta": end, "usage": final}, "message_delta")
    yield _event({"type": "message_stop"}, "message_stop")


def _gemini(answer: Json) -> Iterator[str]:
    if not answer.get("candidates"):
        yield _event(answer)
        return
    head = {name: value for name, value in answer.items() if name not in ("candidates", "usageMetadata")}
    candidate = answer["candidates"][0]
    for part in candidate["content"]["parts"]:
        texts = (
            list(_pieces(part["text"])) if part.get("text") and "thoughtSignature" not in part else [part.get("text")]
        )
        for text in texts:
            cut = part | ({"text": text} if text is not None else {})
            yield _event(head | {"candidates": [{"content": {"parts": [cut], "role": "model"}, "index": 0}]})
    last = candidate | {"content": {"role": "model"}}
    yield _event(head | {"candidates": [last], "usageMetadata": answer["usageMetadata"]})


_EVENTS: dict[str, Any] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
