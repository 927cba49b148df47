"""Anthropic's Messages API, versions ``2026-10-21`` and ``2023-06-01``.

Facts: https://platform.claude.com/docs/en/api/messages and .../migration-2026-10-21. The newer version
refuses sampling parameters and documents in assistant messages, and its SDKs send the key as a bearer token.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

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
)
from outlast.model import Completion, Delta, DeltaSink, Finish, ModelRequest, ModelSettings
from outlast.models._endpoint import Assembler, Endpoint, exchange
from outlast.models._wire import (
    OPENING,
    answer_id,
    dump,
    dump_extra,
    in_call_order,
    is_own,
    load_extra,
    media_note,
    merged,
    mime_of,
    object_args,
    piece,
    present,
    system_text,
    unsupported,
    wire_ids,
)
from outlast.usage import Usage

_PROVIDER, _API = "anthropic", "messages"
_FINISH: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_use",
    "pause_turn": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_overflow",
}
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high"}
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?![\d])")
_STREAMED_INPUT = "streamed_input"


class Anthropic:
    """A Claude model behind the Messages API.

    Args:
        model: The model's name at the provider.
        api_key: The key; without one, the variable ``api_key_env`` of the worker is read at each call.
        base_url: Where the API is, without ``/v1``; without one, ``ANTHROPIC_BASE_URL``, then Anthropic.
        timeout: Seconds without a byte from the provider before the call is given up.
        version: The API version. ``temperature`` and ``top_p`` are only sent with the older one.
        max_tokens: The limit of output that the API demands, where the settings give none.
        cache: How long the API keeps the prompt's prefix for the next call; None for no caching.
        key_required: Whether a missing key is an error; local servers need none.

    The API has no seed: that setting is left out.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_key_env: str = "ANTHROPIC_API_KEY",
        base_url: str | None = None,
        timeout: float = 600.0,
        version: Literal["2026-10-21", "2023-06-01"] = "2026-10-21",
        max_tokens: int = 16_000,
        cache: Literal["5m", "1h"] | None = None,
        key_required: bool = True,
    ) -> None:
        self.endpoint = Endpoint(
            provider=_PROVIDER,
            api=_API,
            model=model,
            default_url="https://api.anthropic.com",
            base_url=base_url,
            base_url_env="ANTHROPIC_BASE_URL",
            api_key=api_key,
            api_key_env=(api_key_env,) if api_key_env else (),
            key_required=key_required,
            timeout=timeout,
        )
        self.version = version
        self.max_tokens = max_tokens
        self.cache = cache

    @property
    def name(self) -> str:
        """``anthropic:MODEL``."""
        return f"{_PROVIDER}:{self.endpoint.model}"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        """Answer once, without retrying; streams when ``on_delta`` is given.

        Raises:
            ModelError: Any failure, as the subclass that names its kind.
        """
        return await exchange(self.endpoint, self, request, on_delta)

    def path(self, stream: bool) -> str:
        """The path after the base URL."""
        return "/v1/messages"

    def headers(self, key: str) -> Mapping[str, str]:
        """The version and exactly one header with the key: with two, the API ignores the bearer token."""
        headers = {"anthropic-version": self.version}
        if not key:
            return headers
        if self.version == "2023-06-01":
            return headers | {"x-api-key": key}
        return headers | {"authorization": f"Bearer {key}"}

    def render(self, request: ModelRequest, stream: bool = False) -> dict[str, Json]:
        """The request's body."""
        settings = request.settings
        limit = settings.max_output_tokens or self.max_tokens
        body: dict[str, Json] = {"model": self.endpoint.model, "max_tokens": limit}
        body |= present(system=system_text(request.messages) or None)
        body["messages"] = _turns(request.messages)
        if stream:
            body["stream"] = True
        if request.tools:
            body["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in request.tools
            ]
            body |= present(tool_choice=_tool_choice(settings))
        thinking = _thinking(self.endpoint.model, settings, limit)
        if request.response_format:
            form = {"format": {"type": "json_schema", "schema": request.response_format.json_schema}}
            thinking["output_config"] = thinking.get("output_config", {}) | form
        body |= thinking | present(stop_sequences=list(settings.stop) or None)
        if self.version == "2023-06-01" and "thinking" not in thinking:
            body |= present(temperature=settings.temperature, top_p=settings.top_p)
        if self.cache:
            body["cache_control"] = {"type": "ephemeral", "ttl": self.cache}
        return merged(body, settings.extra)

    def parse(self, response: dict[str, Json]) -> Completion:
        """The completion in an answer's body."""
        blocks = [_read(block, index, response.get("id")) for index, block in enumerate(response["content"])]
        raw = response.get("stop_reason") or ""
        if raw == "refusal":
            details = response.get("stop_details") or {}
            blocks.append(RefusalBlock(text=details.get("explanation") or "", category=details.get("category")))
        finish = _FINISH.get(raw, "stop")
        if finish == "stop" and any(isinstance(block, ToolCallBlock) for block in blocks):
            finish = "tool_use"
        model = response.get("model") or self.endpoint.model
        origin = Origin(provider=_PROVIDER, api=_API, model=model, response_id=response.get("id"))
        return Completion(
            message=Message(role="assistant", blocks=tuple(blocks), origin=origin),
            finish=finish,
            finish_raw=raw,
            usage=self.usage(response),
            model=model,
        )

    def usage(self, response: dict[str, Json]) -> Usage:
        """What an answer, or as much as came of it, says that it has used up."""
        return _usage(response.get("usage") or {})

    def assembler(self) -> Assembler:
        """A fresh assembler for one streamed answer."""
        return _Events()


def _tool_choice(settings: ModelSettings) -> dict[str, Json] | None:
    kind = {"required": "any", "none": "none"}.get(settings.tool_choice or "", "auto")
    if settings.parallel_tool_calls is not None and kind != "none":
        return {"type": kind, "disable_parallel_tool_use": not settings.parallel_tool_calls}
    return {"type": kind} if settings.tool_choice else None


def _thinking(model: str, settings: ModelSettings, limit: int) -> dict[str, Json]:
    """Models up to 4.5 take a budget, which must stay below the output limit; later ones an effort."""
    effort = settings.reasoning_effort
    if effort is None or effort == "none":
        return {}
    found = _VERSION.search(model)
    if found is None or (int(found[1]), int(found[2] or 0)) >= (4, 6):
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": _EFFORTS[effort]}}
    budget = min(_BUDGETS[effort], limit // 2)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= 1024 else {}


def _turns(messages: Sequence[Message]) -> list[dict[str, Json]]:
    """Alternating turns that begin with the user's; turns without content are left out, as the API demands."""
    ids = wire_ids(messages, _PROVIDER, _API)
    turns: list[dict[str, Json]] = []
    for message in in_call_order(messages):
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        content = list(_content(message, ids))
        if content and turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        elif content:
            turns.append({"role": role, "content": content})
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    return turns


def _content(message: Message, ids: Mapping[str, str]) -> Iterator[dict[str, Json]]:
    own = is_own(message, _PROVIDER, _API)
    for block in message.blocks:
        match block:
            case TextBlock() if block.text.strip():
                notes = [json.loads(note) for note in block.citations] if own else []
                yield {"type": "text", "text": block.text} | present(citations=notes or None)
            case RefusalBlock() if block.text.strip() and not own:
                yield {"type": "text", "text": block.text}
            case MediaBlock() if message.role == "assistant":
                yield {"type": "text", "text": media_note(block)}
            case MediaBlock():
                yield _media(block)
            case ToolCallBlock():
                extra = load_extra(block.extra) if own else {}
                yield {"type": "tool_use", "id": ids[block.id], "name": block.name, "input": object_args(block)} | extra
            case ToolResultBlock():
                yield _result(block, ids)
            case ReasoningBlock(redacted=str()) if own:
                yield {"type": "redacted_thinking", "data": block.redacted}
            case ReasoningBlock(signature=str()) if own:
                yield {"type": "thinking", "thinking": block.text, "signature": block.signature}
            case OpaqueBlock(provider="anthropic") if own:
                yield json.loads(block.raw)
            case _:
                pass


def _result(result: ToolResultBlock, ids: Mapping[str, str]) -> dict[str, Json]:
    content: Json = result.text
    if any(isinstance(block, MediaBlock) for block in result.content):
        content = [
            _media(block) if isinstance(block, MediaBlock) else {"type": "text", "text": block.text}
            for block in result.content
            if isinstance(block, MediaBlock) or block.text.strip()
        ]
    rendered = {"type": "tool_result", "tool_use_id": ids[result.call_id], "content": content}
    return rendered | ({"is_error": True} if result.is_error else {})


def _media(block: MediaBlock) -> dict[str, Json]:
    if block.media == "audio":
        raise unsupported(_PROVIDER, block, "text")
    source: dict[str, Json] = {"type": "base64", "media_type": mime_of(block), "data": block.data}
    if block.source == "url":
        source = {"type": "url", "url": block.data}
    elif block.source == "file_id":
        source = {"type": "file", "file_id": block.data}
    if block.media == "image":
        return {"type": "image", "source": source}
    if block.source == "base64" and mime_of(block).startswith("text/"):
        text = base64.b64decode(block.data).decode("utf-8", "replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "document", "source": source} | present(title=block.name)


def _read(block: Mapping[str, Json], index: int, response_id: str | None) -> AnyBlock:
    match block.get("type"):
        case "text":
            notes = tuple(dump(note) for note in block.get("citations") or ())
            return TextBlock(text=block.get("text") or "", citations=notes)
        case "thinking":
            return ReasoningBlock(text=block.get("thinking") or "", signature=block.get("signature") or None)
        case "redacted_thinking":
            return ReasoningBlock(redacted=block.get("data") or "")
        case "tool_use":
            known = {"type", "id", "name", "input", _STREAMED_INPUT}
            return ToolCallBlock(
                id=block.get("id") or answer_id(response_id, index),
                name=block.get("name") or "",
                raw_args=block.get(_STREAMED_INPUT) or dump(block.get("input") or {}),
                provider_call_id=block.get("id"),
                extra=dump_extra({name: value for name, value in block.items() if name not in known}),
            )
        case _:
            return OpaqueBlock(provider=_PROVIDER, raw=dump(block))


def _usage(usage: Mapping[str, Json]) -> Usage:
    """``input_tokens`` excludes what was read from or written to the cache; thinking is inside the output."""
    read = usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    return Usage(
        input_tokens=(usage.get("input_tokens") or 0) + read + written,
        cached_input_tokens=read,
        cache_write_tokens=written,
        output_tokens=usage.get("output_tokens") or 0,
        reasoning_tokens=(usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0,
        model_calls=1,
    )


class _Events:
    """Stream events, put together to a message."""

    def __init__(self) -> None:
        self._message: dict[str, Json] = {}
        self._blocks: dict[int, dict[str, Json]] = {}
        self._inputs: dict[int, list[str]] = {}

    def feed(self, event: dict[str, Json]) -> Sequence[Delta]:
        """Take one event in; unknown ones (and ``ping``) say nothing."""
        match event.get("type"):
            case "message_start":
                self._message = dict(event["message"])
            case "content_block_start":
                block = dict(event["content_block"])
                self._blocks[event["index"]] = block
                if block.get("type") == "tool_use":
                    return [self._call_delta(event["index"], "")]
            case "content_block_delta":
                return self._block_delta(event["index"], event["delta"])
            case "message_delta":
                usage = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
                self._message |= event["delta"]
                self._message["usage"] = (self._message.get("usage") or {}) | usage
        return ()

    def so_far(self) -> dict[str, Json]:
        """What has come beside the content."""
        return self._message

    def response(self) -> dict[str, Json] | None:
        """The whole message; None without a stop reason."""
        if not self._message.get("stop_reason"):
            return None
        for index, parts in self._inputs.items():
            block, text = self._blocks[index], "".join(parts)
            if block.get("type") == "tool_use":
                block[_STREAMED_INPUT] = text
            elif text:
                block["input"] = json.loads(text)
        return self._message | {"content": [self._blocks[index] for index in sorted(self._blocks)]}

    def _block_delta(self, index: int, delta: Mapping[str, Json]) -> Sequence[Delta]:
        block = self._blocks[index]
        match delta.get("type"):
            case "text_delta":
                block["text"] = (block.get("text") or "") + delta["text"]
                return [piece(delta["text"])]
            case "thinking_delta":
                block["thinking"] = (block.get("thinking") or "") + delta["thinking"]
                return [piece(delta["thinking"], kind="reasoning")]
            case "signature_delta":
                block["signature"] = (block.get("signature") or "") + delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
                if block.get("type") == "tool_use":
                    return [self._call_delta(index, delta["partial_json"])]
        return ()

    def _call_delta(self, index: int, text: str) -> Delta:
        calls = [place for place in sorted(self._blocks) if self._blocks[place].get("type") == "tool_use"]
        return piece(text, kind="tool_call", call_index=calls.index(index), tool=self._blocks[index].get("name") or "")
