"""The official SDKs as judges: the same question to the same server, and the answer as they read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types as gemini_types

from outlast.messages import Json

from .providers import KEY


async def ask_sdk(provider: str, url: str, *, stream: bool) -> Json:
    """Ask ``Hi`` with an SDK; what it read, as plain JSON."""
    return await _ASK[provider](url, stream)


@asynccontextmanager
async def _openai(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0) as client:
        yield client


async def _chat(url: str, stream: bool) -> Json:
    messages: Any = [{"role": "user", "content": "Hi"}]
    async with _openai(url) as client:
        if not stream:
            return (await client.chat.completions.create(model="gpt-5.2", messages=messages)).model_dump(
                exclude_unset=True
            )
        options: Any = {"include_usage": True}
        async with client.chat.completions.stream(model="gpt-5.2", messages=messages, stream_options=options) as events:
            return (await events.get_final_completion()).model_dump(exclude_unset=True)


async def _responses(url: str, stream: bool) -> Json:
    options: Any = {
        "model": "gpt-5.2",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
    }
    async with _openai(url) as client:
        if not stream:
            return (await client.responses.create(**options)).model_dump(exclude_unset=True)
        async with client.responses.stream(**options) as events:
            async for event in events:
                if event.type == "response.incomplete":  # the SDK's own accumulator knows only completed ones
                    return event.response.model_dump(exclude_unset=True)
            return (await events.get_final_response()).model_dump(exclude_unset=True)


async def _anthropic(url: str, stream: bool) -> Json:
    messages: Any = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0) as client:
        options: Any = {"model": "claude-sonnet-5", "max_tokens": 4096, "messages": messages}
        if not stream:
            return (await client.messages.create(**options)).model_dump(exclude_unset=True)
        async with client.messages.stream(**options) as events:
            return (await events.get_final_message()).model_dump(exclude_unset=True)


async def _gemini(url: str, stream: bool) -> Json:
    options = gemini_types.HttpOptions(base_url=url)
    client = genai.Client(api_key=KEY, http_options=options)
    contents = [gemini_types.Content(role="user", parts=[gemini_types.Part(text="Hi")])]
    try:
        if not stream:
            answer = await client.aio.models.generate_content(model="gemini-3-pro", contents=contents)
            return _dump(answer)
        whole: dict[str, Any] = {}
        parts: list[Any] = []
        chunks = await client.aio.models.generate_content_stream(model="gemini-3-pro", contents=contents)
        async for chunk in chunks:
            payload = _dump(chunk)
            for candidate in payload.get("candidates", ()):
                parts += (candidate.get("content") or {}).get("parts", ())
            whole |= payload
        for candidate in whole.get("candidates", ()):
            candidate["content"] = {"parts": parts}
        return whole
    finally:
        await client.aio.aclose()


def _dump(answer: gemini_types.GenerateContentResponse) -> Json:
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"sdk_http_response"})


_ASK: dict[str, Any] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
