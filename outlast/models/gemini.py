"""Google's Gemini API, ``generateContent`` on ``v1`` or ``v1beta``.

Thought signatures stand on any part and go back unchanged, part by part; Gemini 3 and later refuse a call
of the current turn without one. Facts: https://ai.google.dev/api/generate-content and
https://ai.google.dev/gemini-api/docs/thought-signatures
"""

from __future__ import annotations

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
    merged,
    mime_of,
    object_args,
    piece,
    present,
    system_text,
    wire_ids,
)
from outlast.usage import Usage

_PROVIDER, _API = "gemini", "generateContent"
_BLOCKED = frozenset(
    {
        "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
        "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION",
    }
)  # fmt: skip
_FINISH: Mapping[str, Finish] = {"STOP": "stop", "MAX_TOKENS": "length", "CONTINUATION": "pause"}
_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576}
_NO_SIGNATURE = "skip_thought_signature_validator"
"""What Google's documentation gives for calls that another model made."""


class Gemini:
    """A Gemini model.

    Args:
        model: The model's name at the provider.
        api_key: The key; without one, the variables ``api_key_env`` and ``GOOGLE_API_KEY`` are read at each call.
        base_url: Where the API is, without the version; without one, ``GOOGLE_GEMINI_BASE_URL``, then Google.
        timeout: Seconds without a byte from the provider before the call is given up.
        api_version: The first part of the path; other servers often know ``v1beta`` only.
        schema_field: Where a tool's schema goes; servers that drop ``parameters_json_schema`` take ``parameters``.
        include_thoughts: Whether to ask for summaries of the reasoning, when a reasoning effort is set.

    The API cannot forbid parallel calls: that setting is left out.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_key_env: str = "GEMINI_API_KEY",
        base_url: str | None = None,
        timeout: float = 600.0,
        api_version: Literal["v1", "v1beta"] = "v1",
        schema_field: Literal["parameters_json_schema", "parameters"] = "parameters_json_schema",
        include_thoughts: bool = True,
    ) -> None:
        self.endpoint = Endpoint(
            provider=_PROVIDER,
            api=_API,
            model=model,
            default_url="https://generativelanguage.googleapis.com",
            base_url=base_url,
            base_url_env="GOOGLE_GEMINI_BASE_URL",
            api_key=api_key,
            api_key_env=(api_key_env, "GOOGLE_API_KEY"),
            timeout=timeout,
        )
        self.api_version = api_version
        self.schema_field = schema_field
        self.include_thoughts = include_thoughts

    @property
    def name(self) -> str:
        """``gemini:MODEL``."""
        return f"{_PROVIDER}:{self.endpoint.model}"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        """Answer once, without retrying; streams when ``on_delta`` is given.

        Raises:
            ModelError: Any failure, as the subclass that names its kind.
        """
        return await exchange(self.endpoint, self, request, on_delta)

    def path(self, stream: bool) -> str:
        """The path after the base URL, which names the model and the method."""
        model = self.endpoint.model if "/" in self.endpoint.model else f"models/{self.endpoint.model}"
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{self.api_version}/{model}:{method}"

    def headers(self, key: str) -> Mapping[str, str]:
        """The key."""
        return {"x-goog-api-key": key} if key else {}

    def render(self, request: ModelRequest, stream: bool = False) -> dict[str, Json]:
        """The request's body."""
        settings = request.settings
        body: dict[str, Json] = {"contents": _contents(request.messages, self._strict_signatures)}
        instructions = system_text(request.messages)
        if instructions:
            body["systemInstruction"] = {"parts": [{"text": instructions}], "role": "user"}
        if request.tools:
            declarations = [
                {"name": tool.name, "description": tool.description, self.schema_field: tool.parameters}
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declarations}]
            mode = {"auto": "AUTO", "required": "ANY", "none": "NONE"}.get(settings.tool_choice or "")
            if mode:
                body["toolConfig"] = {"functionCallingConfig": {"mode": mode}}
        config = self._config(request, settings)
        if config:
            body["generationConfig"] = config
        return merged(body, settings.extra)

    def parse(self, response: dict[str, Json]) -> Completion:
        """The completion in an answer's body; a blocked prompt is a refusal without any other content."""
        blocks: tuple[AnyBlock, ...]
        if response.get("candidates"):
            candidate = response["candidates"][0]
            parts = (candidate.get("content") or {}).get("parts") or []
            blocks = tuple(_read_parts(parts, response.get("responseId")))
            raw = candidate.get("finishReason") or ""
        else:
            raw = response["promptFeedback"]["blockReason"]
            text = response["promptFeedback"].get("blockReasonMessage") or ""
            blocks = (RefusalBlock(text=text, category=raw),)
        model = response.get("modelVersion") or self.endpoint.model
        origin = Origin(provider=_PROVIDER, api=_API, model=model, response_id=response.get("responseId"))
        return Completion(
            message=Message(role="assistant", blocks=blocks, origin=origin),
            finish=_finish(raw, blocks, blocked=not response.get("candidates")),
            finish_raw=raw,
            usage=self.usage(response),
            model=model,
        )

    def usage(self, response: dict[str, Json]) -> Usage:
        """What an answer, or as much as came of it, says that it has used up."""
        return _usage(response.get("usageMetadata") or {})

    def assembler(self) -> Assembler:
        """A fresh assembler for one streamed answer."""
        return _Chunks()

    @property
    def _generation(self) -> int:
        found = re.search(r"gemini-(\d+)", self.endpoint.model)
        return int(found[1]) if found else 0

    @property
    def _strict_signatures(self) -> bool:
        return self._generation >= 3

    def _config(self, request: ModelRequest, settings: ModelSettings) -> dict[str, Json]:
        config = present(
            temperature=settings.temperature,
            topP=settings.top_p,
            maxOutputTokens=settings.max_output_tokens,
            stopSequences=list(settings.stop) or None,
            seed=settings.seed,
        )
        if request.response_format:
            field = "responseSchema" if self.schema_field == "parameters" else "responseJsonSchema"
            config |= {"responseMimeType": "application/json", field: request.response_format.json_schema}
        effort = settings.reasoning_effort
        if effort:
            level = {"thinkingLevel": "MINIMAL" if effort == "none" else effort.upper()}
            budget = {"thinkingBudget": _BUDGETS[effort]}
            shown = {"includeThoughts": True} if self.include_thoughts and effort != "none" else {}
            config["thinkingConfig"] = (level if self._generation >= 3 else budget) | shown
        return config


def _contents(messages: Sequence[Message], strict: bool) -> list[dict[str, Json]]:
    """Alternating contents that begin with the user's; contents without parts are left out."""
    ids = wire_ids(messages, _PROVIDER, _API)
    # an own call without an id stays without one: the API then matches results by order and name
    unnamed = {
        call.id
        for message in messages
        if is_own(message, _PROVIDER, _API)
        for call in message.tool_calls
        if call.provider_call_id is None
    }
    ids = {local: wire for local, wire in ids.items() if local not in unnamed}
    contents: list[dict[str, Json]] = []
    for message in in_call_order(messages):
        if message.role == "system":
            continue
        role = "model" if message.role == "assistant" else "user"
        parts = list(_parts(message, ids, strict))
        if parts and contents and contents[-1]["role"] == role:
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"parts": parts, "role": role})
    if not contents or contents[0]["role"] != "user":
        contents.insert(0, {"parts": [{"text": OPENING}], "role": "user"})
    return contents


def _parts(message: Message, ids: Mapping[str, str], strict: bool) -> Iterator[dict[str, Json]]:
    own = is_own(message, _PROVIDER, _API)
    unsigned = strict and bool(message.tool_calls) and not (own and any(call.signature for call in message.tool_calls))
    for block in message.blocks:
        extra = load_extra(block.extra) if own else {}
        match block:
            case ReasoningBlock() if own:
                yield {"text": block.text, "thought": True} | present(thoughtSignature=block.signature) | extra
            case TextBlock() if own and (block.text or block.signature):
                yield {"text": block.text} | present(thoughtSignature=block.signature) | extra
            case TextBlock() if block.text:
                yield {"text": block.text}
            case RefusalBlock() if block.text and not own:
                yield {"text": block.text}
            case MediaBlock():
                yield _media(block) | extra
            case ToolCallBlock():
                call = present(id=ids.get(block.id)) | {"name": block.name, "args": object_args(block)}
                signature = block.signature if own else None
                if unsigned:
                    signature, unsigned = _NO_SIGNATURE, False
                yield {"functionCall": call} | present(thoughtSignature=signature) | extra
            case ToolResultBlock():
                yield from _result(block, ids, nested=strict)
            case OpaqueBlock(provider="gemini") if own:
                yield json.loads(block.raw)
            case _:
                pass


def _result(result: ToolResultBlock, ids: Mapping[str, str], *, nested: bool) -> Iterator[dict[str, Json]]:
    """Gemini 3 takes media inside a function response, earlier models beside it."""
    outcome = {"error" if result.is_error else "output": result.text}
    response = present(id=ids.get(result.call_id)) | {"name": result.name, "response": outcome}
    media = [_media(block) for block in result.content if isinstance(block, MediaBlock)]
    if media and nested:
        response["parts"] = media
    yield {"functionResponse": response}
    if not nested:
        yield from media


def _media(block: MediaBlock) -> dict[str, Json]:
    if block.source == "base64":
        return {"inlineData": {"mimeType": mime_of(block), "data": block.data}}
    return {"fileData": {"mimeType": mime_of(block), "fileUri": block.data}}


def _read_parts(parts: Sequence[Mapping[str, Json]], response_id: str | None) -> Iterator[AnyBlock]:
    """Blocks of parts; neighbours of plain text, as a stream cuts it, are one block."""
    plain: TextBlock | ReasoningBlock | None = None
    for index, part in enumerate(parts):
        block = _read_part(part, index, response_id)
        joins = isinstance(block, TextBlock | ReasoningBlock) and not block.signature and block.extra is None
        if joins and isinstance(block, TextBlock | ReasoningBlock):
            if plain is not None and plain.kind == block.kind:
                plain = plain.replace(text=plain.text + block.text)
                continue
            if plain is not None:
                yield plain
            plain = block if block.text else None
            continue
        if plain is not None:
            yield plain
            plain = None
        yield block
    if plain is not None:
        yield plain


def _read_part(part: Mapping[str, Json], index: int, response_id: str | None) -> AnyBlock:
    signature = part.get("thoughtSignature")
    if "text" in part:
        known = {"text", "thought", "thoughtSignature"}
        extra = dump_extra({name: value for name, value in part.items() if name not in known})
        kind = ReasoningBlock if part.get("thought") else TextBlock
        return kind(text=part["text"], signature=signature, extra=extra)
    if "functionCall" in part:
        call = part["functionCall"]
        return ToolCallBlock(
            id=call.get("id") or answer_id(response_id, index),
            name=call.get("name") or "",
            raw_args=dump(call.get("args") or {}),
            provider_call_id=call.get("id") or None,
            signature=signature,
        )
    if "inlineData" in part and not part.get("thought"):
        mime = part["inlineData"].get("mimeType") or ""
        kinds: Mapping[str, Literal["image", "audio"]] = {"image": "image", "audio": "audio"}
        return MediaBlock(
            media=kinds.get(mime.partition("/")[0], "file"),
            data=part["inlineData"].get("data") or "",
            mime_type=mime or None,
            extra=dump_extra({"thoughtSignature": signature}),
        )
    return OpaqueBlock(provider=_PROVIDER, raw=dump(part))


def _finish(raw: str, blocks: Sequence[AnyBlock], *, blocked: bool) -> Finish:
    """Calls come with ``STOP``; whatever is neither an end nor a block is an error (a malformed call, say)."""
    if blocked or raw in _BLOCKED:
        return "content_filter"
    finish = _FINISH.get(raw, "error")
    if finish == "stop" and any(isinstance(block, ToolCallBlock) for block in blocks):
        return "tool_use"
    return finish


def _usage(usage: Mapping[str, Json]) -> Usage:
    """The prompt includes what was cached; thoughts stand beside the candidates, tool prompts beside the prompt."""
    thoughts = usage.get("thoughtsTokenCount") or 0
    return Usage(
        input_tokens=(usage.get("promptTokenCount") or 0) + (usage.get("toolUsePromptTokenCount") or 0),
        cached_input_tokens=usage.get("cachedContentTokenCount") or 0,
        output_tokens=(usage.get("candidatesTokenCount") or 0) + thoughts,
        reasoning_tokens=thoughts,
        model_calls=1,
    )


class _Chunks:
    """Partial responses, put together to one."""

    def __init__(self) -> None:
        self._head: dict[str, Json] = {}
        self._candidate: dict[str, Json] = {}
        self._parts: list[Json] = []
        self._calls = 0

    def feed(self, event: dict[str, Json]) -> Sequence[Delta]:
        """Take one partial response in."""
        self._head |= {name: value for name, value in event.items() if name != "candidates" and value is not None}
        deltas: list[Delta] = []
        for candidate in (event.get("candidates") or ())[:1]:
            self._candidate |= {name: value for name, value in candidate.items() if name != "content"}
            for part in (candidate.get("content") or {}).get("parts") or ():
                self._parts.append(part)
                deltas += self._deltas(part)
        return deltas

    def so_far(self) -> dict[str, Json]:
        """What has come beside the content."""
        return self._head

    def response(self) -> dict[str, Json] | None:
        """The whole response; None without a finish or a block reason."""
        if self._candidate.get("finishReason"):
            return self._head | {"candidates": [self._candidate | {"content": {"parts": self._parts}}]}
        blocked = (self._head.get("promptFeedback") or {}).get("blockReason")
        return self._head if blocked and not self._parts else None

    def _deltas(self, part: Mapping[str, Json]) -> Iterator[Delta]:
        if part.get("text"):
            yield piece(part["text"], kind="reasoning" if part.get("thought") else "text")
        if "functionCall" in part:
            call = part["functionCall"]
            text = dump(call.get("args") or {})
            yield piece(text, kind="tool_call", call_index=self._calls, tool=call.get("name") or "")
            self._calls += 1
