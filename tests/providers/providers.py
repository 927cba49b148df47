"""The four providers under test, pointed at a fake server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from outlast.messages import Json
from outlast.model import Completion, DeltaSink, ModelRequest
from outlast.models import Anthropic, Gemini, OpenAIChat, OpenAIResponses
from outlast.models._endpoint import Assembler, Endpoint

from .fake_server import Reply, json_reply

KEY = "test-key-0123456789"


class ProviderModel(Protocol):
    """A model whose pure parts the tests use too."""

    endpoint: Endpoint

    @property
    def name(self) -> str: ...

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion: ...

    def render(self, request: ModelRequest, stream: bool = False) -> dict[str, Json]: ...

    def parse(self, response: dict[str, Json]) -> Completion: ...

    def assembler(self) -> Assembler: ...


def openai_chat(url: str) -> ProviderModel:
    """Chat Completions."""
    return OpenAIChat("gpt-5.2", api_key=KEY, base_url=f"{url}/v1", timeout=5)


def openai_responses(url: str) -> ProviderModel:
    """Responses."""
    return OpenAIResponses("gpt-5.2", api_key=KEY, base_url=f"{url}/v1", timeout=5, reasoning_summary="auto")


def anthropic(url: str) -> ProviderModel:
    """Messages."""
    return Anthropic("claude-sonnet-5", api_key=KEY, base_url=url, timeout=5, max_tokens=4096)


def gemini(url: str) -> ProviderModel:
    """generateContent."""
    return Gemini("gemini-3-pro", api_key=KEY, base_url=url, timeout=5)


PROVIDERS: Mapping[str, Callable[[str], ProviderModel]] = {
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
}

_HELLO: Mapping[str, Json] = {
    "openai_chat": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5.2",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}],
    },
    "openai_responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.2",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    },
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "gemini": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
        "modelVersion": "gemini-3-pro",
        "responseId": "r1",
    },
}


def hello(provider: str) -> Reply:
    """A plain answer of a provider: ``Hello``."""
    return json_reply(_HELLO[provider])
