"""What providers answer: one table per API, written after the official types; marked synthetic where never recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outlast.messages import Json

LONG = 'Grüße aus Zürich 🙂 line\u2028separator, a tab\t and a quote ".'


def _chat(message: Json, finish: str, **more: Json) -> Json:
    return {
        "id": "chatcmpl-9",
        "object": "chat.completion",
        "created": 1764500000,
        "model": "gpt-5.2-2025-12-11",
        "choices": [
            {"index": 0, "finish_reason": finish, "logprobs": None, "message": {"role": "assistant"} | message}
        ],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 0},
        },
    } | more


def _chat_call(id: str, args: str, name: str = "get_weather") -> Json:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": args}}


CHAT: Mapping[str, Json] = {
    "text": _chat({"content": LONG, "refusal": None}, "stop", system_fingerprint="fp_1", new_field={"x": 1}),
    "parallel calls": _chat(
        {
            "content": None,
            "tool_calls": [_chat_call("call_a", '{"city": "Zürich"}'), _chat_call("call_b", "{}", "get_time")],
        },
        "tool_calls",
    ),
    "text and a call": _chat({"content": "Wait.", "tool_calls": [_chat_call("call_a", '{"n":1.0}')]}, "tool_calls"),
    "arguments that are no JSON": _chat(
        {"content": None, "tool_calls": [_chat_call("call_a", '{"city": ')]}, "tool_calls"
    ),
    "cut off in a call": _chat({"content": None, "tool_calls": [_chat_call("call_a", '{"city": "Zü')]}, "length"),
    "refusal": _chat({"content": None, "refusal": "I can't help with that."}, "stop"),
    "filtered (synthetic)": _chat({"content": ""}, "content_filter"),
    "empty": _chat({"content": ""}, "stop"),
    "reasoning of a local server": _chat({"content": "4", "reasoning_content": "2+2 is 4"}, "stop"),
}


def _responses(output: list[Json], **more: Json) -> Json:
    return {
        "id": "resp_9",
        "object": "response",
        "created_at": 1764500000,
        "model": "gpt-5.2-2025-12-11",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 10},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 20},
            "total_tokens": 150,
        },
    } | more


def _item(text: str, id: str = "msg_1", **more: Json) -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": [part]} | more


def _function_call(call_id: str, args: str, name: str = "get_weather", status: str = "completed") -> Json:
    id = call_id.replace("call", "fc")
    return {"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": args, "status": status}


_THOUGHT: Json = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "**Looking**"}, {"type": "summary_text", "text": "at the sky"}],
    "encrypted_content": "gAAAAABencrypted==",
}
_NOTE: Json = {
    "type": "url_citation",
    "start_index": 0,
    "end_index": 4,
    "url": "https://example.com",
    "title": "Example",
}

RESPONSES: Mapping[str, Json] = {
    "text": _responses([_item(LONG)], new_field={"x": 1}),
    "parallel calls": _responses(
        [_function_call("call_a", '{"city": "Zürich"}'), _function_call("call_b", "{}", "get_time")]
    ),
    "arguments that are no JSON": _responses([_function_call("call_a", '{"city": ')]),
    "reasoning and a call": _responses([_THOUGHT, _function_call("call_a", '{"n":1.0}')]),
    "commentary, reasoning and an answer": _responses(
        [_item("Let me think.", "msg_0", phase="commentary"), _THOUGHT, _item("It rains.", phase="final_answer")]
    ),
    "refusal": _responses(
        [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "refusal", "refusal": "I can't help with that."}],
            }
        ]
    ),
    "cut off in a call": _responses(
        [_function_call("call_a", '{"city": "Zü', status="incomplete")],
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    ),
    "cut off while thinking": _responses(
        [_THOUGHT], status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    ),
    "filtered (synthetic)": _responses([], status="incomplete", incomplete_details={"reason": "content_filter"}),
    "empty": _responses([]),
    "a server tool with citations": _responses(
        [
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            },
            _item("Rain.", content=[{"type": "output_text", "text": "Rain.", "annotations": [_NOTE], "logprobs": []}]),
        ]
    ),
}


def _anthropic(content: list[Json], stop: str, **more: Json) -> Json:
    return {
        "id": "msg_9",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-20260901",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 26,
            "cache_creation_input_tokens": 10,
            "cache_read_input_tokens": 64,
            "output_tokens": 50,
            "output_tokens_details": {"thinking_tokens": 20},
            "service_tier": "standard",
        },
    } | more


def _tool_use(id: str, input: Json, name: str = "get_weather") -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


_THINKING: Json = {"type": "thinking", "thinking": "Rain? Let me look.", "signature": "EqQBsignature=="}
_CITED: Json = {
    "type": "text",
    "text": "Rain.",
    "citations": [
        {
            "type": "web_search_result_location",
            "cited_text": "Rain",
            "encrypted_index": "Eo8=",
            "title": "W",
            "url": "https://e.com",
        }
    ],
}
_SEARCH: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}}
_FOUND: Json = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://e.com",
            "title": "W",
            "encrypted_content": "Eq==",
            "page_age": None,
        }
    ],
}

ANTHROPIC: Mapping[str, Json] = {
    "text": _anthropic([{"type": "text", "text": LONG}], "end_turn", new_field={"x": 1}),
    "parallel calls": _anthropic(
        [_tool_use("toolu_a", {"city": "Zürich"}), _tool_use("toolu_b", {}, "get_time")], "tool_use"
    ),
    "text and a call": _anthropic([{"type": "text", "text": "Wait."}, _tool_use("toolu_a", {"n": 1.0})], "tool_use"),
    "thinking and a call": _anthropic([_THINKING, _tool_use("toolu_a", {"city": "Zürich"})], "tool_use"),
    "thinking that is not shown": _anthropic(
        [
            {"type": "thinking", "thinking": "", "signature": "EqQBhidden=="},
            {"type": "redacted_thinking", "data": "EmwKAh=="},
            {"type": "text", "text": "4"},
        ],
        "end_turn",
    ),
    "refusal (synthetic)": _anthropic(
        [{"type": "text", "text": "Well"}],
        "refusal",
        stop_details={"type": "refusal", "category": "cyber", "explanation": "Not allowed."},
    ),
    "cut off": _anthropic([{"type": "text", "text": "Once upon"}], "max_tokens"),
    "context full": _anthropic([{"type": "text", "text": "Once upon"}], "model_context_window_exceeded"),
    "paused turn": _anthropic([_SEARCH], "pause_turn"),
    "empty": _anthropic([], "end_turn"),
    "a server tool with citations": _anthropic([_SEARCH, _FOUND, _CITED], "end_turn"),
}


def _gemini(parts: list[Json], finish: str = "STOP", **more: Json) -> Json:
    return {
        "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": finish, "index": 0}],
        "usageMetadata": {
            "promptTokenCount": 90,
            "cachedContentTokenCount": 64,
            "toolUsePromptTokenCount": 10,
            "candidatesTokenCount": 30,
            "thoughtsTokenCount": 20,
            "totalTokenCount": 150,
        },
        "modelVersion": "gemini-3-pro",
        "responseId": "r9",
    } | more


GEMINI: Mapping[str, Json] = {
    "text": _gemini([{"text": LONG}]),
    "parallel calls": _gemini(
        [
            {
                "functionCall": {"id": "fc_a", "name": "get_weather", "args": {"city": "Zürich"}},
                "thoughtSignature": "CnQBsig0",
            },
            {"functionCall": {"id": "fc_b", "name": "get_time", "args": {}}},
        ]
    ),
    "calls without ids": _gemini(
        [{"functionCall": {"name": "get_time", "args": {}}}, {"functionCall": {"name": "get_time"}}]
    ),
    "thoughts, text and a signature of its own": _gemini(
        [
            {"text": "Rain? Let me look.", "thought": True},
            {"text": "It rains."},
            {"text": "", "thoughtSignature": "CnQBsig1"},
        ]
    ),
    "cut off": _gemini([{"text": "Once upon"}], "MAX_TOKENS"),
    "stopped for safety": _gemini([], "SAFETY"),
    "a malformed call (synthetic)": _gemini([], "MALFORMED_FUNCTION_CALL", finishMessage="Malformed"),
    "a blocked prompt": {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 100, "totalTokenCount": 100},
        "modelVersion": "gemini-3-pro",
        "responseId": "r9",
    },
    "empty": _gemini([]),
    "code that was executed": _gemini(
        [
            {"executableCode": {"language": "PYTHON", "code": "print(2+2)"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}},
            {"text": "4"},
        ]
    ),
    "a picture": _gemini([{"text": "Here:"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}]),
}

ANSWERS: Mapping[str, Mapping[str, Json]] = {
    "openai_chat": CHAT,
    "openai_responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
}
ALL: list[Any] = [(provider, name) for provider, table in ANSWERS.items() for name in table]
