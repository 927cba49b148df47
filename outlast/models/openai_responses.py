"""OpenAI's Responses API, without server-side state: ``store=false``, the whole conversation in every request.

Reasoning items come back encrypted and are sent back with the item that follows them, or not at all: an
item alone is refused ("without its required following item").

Facts: https://platform.openai.com/docs/api-reference/responses
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
from outlast.model import Completion, Delta, DeltaSink, Finish, ModelRequest
from outlast.models._endpoint import Assembler, Endpoint, exchange
from outlast.models._wire import (
    answer_id,
    data_url,
    dump,
    dump_extra,
    in_call_order,
    is_own,
    load_extra,
    media_note,
    merged,
    piece,
    present,
    result_text,
    unsupported,
    wire_ids,
)
from outlast.usage import Usage

_API = "responses"
_WITHOUT_REASONING = re.compile(r"^(ft:)?(gpt-[34]|chatgpt-4)")
_CALL_FIELDS = frozenset({"type", "id", "call_id", "name", "arguments", "status"})
_REASONING_FIELDS = frozenset({"type", "id", "summary", "encrypted_content", "status"})
_INCOMPLETE: Mapping[str, Finish] = {"max_output_tokens": "length", "content_filter": "content_filter"}


class OpenAIResponses:
    """A model behind the Responses API.

    Args:
        model: The model's name at the provider.
        api_key: The key; without one, the variable ``api_key_env`` of the worker is read at each call.
        base_url: Where the API is, up to and with ``/v1``; without one, ``OPENAI_BASE_URL``, then OpenAI.
        timeout: Seconds without a byte from the provider before the call is given up.
        provider: Who serves; recorded with each answer, and what a name begins with.
        key_required: Whether a missing key is an error; local servers need none.
        reasoning_summary: What summary of its reasoning to ask for, when a reasoning effort is set.

    The API has neither stop sequences nor a seed: those settings are left out.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        base_url: str | None = None,
        timeout: float = 600.0,
        provider: str = "openai",
        key_required: bool = True,
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = None,
    ) -> None:
        self.endpoint = Endpoint(
            provider=provider,
            api=_API,
            model=model,
            default_url="https://api.openai.com/v1",
            base_url=base_url,
            base_url_env="OPENAI_BASE_URL",
            api_key=api_key,
            api_key_env=(api_key_env,) if api_key_env else (),
            key_required=key_required,
            timeout=timeout,
        )
        self.reasoning_summary = reasoning_summary

    @property
    def name(self) -> str:
        """``openai:MODEL``."""
        return f"{self.endpoint.provider}:{self.endpoint.model}"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        """Answer once, without retrying; streams when ``on_delta`` is given.

        Raises:
            ModelError: Any failure, as the subclass that names its kind.
        """
        return await exchange(self.endpoint, self, request, on_delta)

    def path(self, stream: bool) -> str:
        """The path after the base URL."""
        return "/responses"

    def headers(self, key: str) -> Mapping[str, str]:
        """A bearer token, if there is a key."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def render(self, request: ModelRequest, stream: bool = False) -> dict[str, Json]:
        """The request's body."""
        settings = request.settings
        messages = list(request.messages)
        body: dict[str, Json] = {"model": self.endpoint.model, "store": False}
        if not _WITHOUT_REASONING.match(self.endpoint.model):
            body["include"] = ["reasoning.encrypted_content"]
        if messages[0].role == "system":
            body["instructions"] = messages.pop(0).text
        body["input"] = list(_Items(self.endpoint.provider).render(messages))
        if stream:
            body["stream"] = True
        if request.tools:
            body["tools"] = [
                {"type": "function", "name": tool.name, "description": tool.description,
                 "parameters": tool.parameters, "strict": False}
                for tool in request.tools
            ]  # fmt: skip
            body |= present(tool_choice=settings.tool_choice, parallel_tool_calls=settings.parallel_tool_calls)
        if request.response_format:
            form = request.response_format
            body["text"] = {
                "format": {"type": "json_schema", "name": form.name, "schema": form.json_schema, "strict": form.strict}
            }
        if settings.reasoning_effort:
            body["reasoning"] = present(effort=settings.reasoning_effort, summary=self.reasoning_summary)
        limits = present(
            temperature=settings.temperature, top_p=settings.top_p, max_output_tokens=settings.max_output_tokens
        )
        return merged(body | limits, settings.extra)

    def parse(self, response: dict[str, Json]) -> Completion:
        """The completion in an answer's body."""
        blocks = tuple(
            block
            for index, item in enumerate(response["output"])
            for block in _read_item(item, index, response.get("id"), self.endpoint.provider)
        )
        finish, raw = _finish(response, blocks)
        model = response.get("model") or self.endpoint.model
        origin = Origin(provider=self.endpoint.provider, api=_API, model=model, response_id=response.get("id"))
        return Completion(
            message=Message(role="assistant", blocks=blocks, origin=origin),
            finish=finish,
            finish_raw=raw,
            usage=self.usage(response),
            model=model,
        )

    def usage(self, response: dict[str, Json]) -> Usage:
        """What an answer, or as much as came of it, says that it has used up."""
        usage = response.get("usage") or {}
        inputs = usage.get("input_tokens_details") or {}
        outputs = usage.get("output_tokens_details") or {}
        return Usage(
            input_tokens=usage.get("input_tokens") or 0,
            cached_input_tokens=inputs.get("cached_tokens") or 0,
            cache_write_tokens=inputs.get("cache_write_tokens") or 0,
            output_tokens=usage.get("output_tokens") or 0,
            reasoning_tokens=outputs.get("reasoning_tokens") or 0,
            model_calls=1,
        )

    def assembler(self) -> Assembler:
        """A fresh assembler for one streamed answer."""
        return _Events()


class _Items:
    """A transcript as input items."""

    def __init__(self, provider: str) -> None:
        self._provider = provider

    def render(self, messages: Sequence[Message]) -> Iterator[dict[str, Json]]:
        ids = wire_ids(messages, self._provider, _API)
        for message in in_call_order(messages):
            match message.role:
                case "assistant" if is_own(message, self._provider, _API):
                    yield from self._own(message.blocks, ids)
                case "assistant":
                    yield from _foreign(message, ids)
                case "tool":
                    yield _result(message.tool_results[0], ids)
                case role:
                    parts = [_part(block) for block in message.blocks]
                    yield {"type": "message", "role": role, "content": parts}

    def _own(self, blocks: Sequence[AnyBlock], ids: Mapping[str, str]) -> Iterator[dict[str, Json]]:
        item: dict[str, Json] = {}
        for index, block in enumerate(blocks):
            if isinstance(block, TextBlock | RefusalBlock):
                extra = load_extra(block.extra)
                if item and item.get("id") == extra.get("item_id"):
                    item["content"].append(_output_part(block))
                    continue
                if item:
                    yield _closed(item)
                item = _message_item(block, extra)
                continue
            if item:
                yield _closed(item)
                item = {}
            if isinstance(block, ToolCallBlock):
                yield _call(block, ids) | present(id=block.provider_item_id) | load_extra(block.extra)
            elif isinstance(block, ReasoningBlock) and block.encrypted and _is_followed(blocks[index + 1 :]):
                yield _reasoning(block)
            elif isinstance(block, OpaqueBlock) and block.provider == self._provider:
                yield json.loads(block.raw)
        if item:
            yield _closed(item)


def _message_item(block: TextBlock | RefusalBlock, extra: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "type": "message",
        "role": "assistant",
        "id": extra.get("item_id"),
        "status": extra.get("status") or "completed",
        "content": [_output_part(block)],
    } | present(phase=block.phase if isinstance(block, TextBlock) else None)


def _closed(item: dict[str, Json]) -> dict[str, Json]:
    """A message item with its id; one that lost it (somebody edited the text) in the short form."""
    if item["id"]:
        return item
    text = "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
    return {"role": "assistant", "content": text} | present(phase=item.get("phase"))


def _output_part(block: TextBlock | RefusalBlock) -> dict[str, Json]:
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    return {"type": "output_text", "text": block.text, "annotations": [json.loads(note) for note in block.citations]}


def _is_followed(rest: Sequence[AnyBlock]) -> bool:
    """Whether the item that a reasoning item belongs to still stands behind it, with its id."""
    following = next((block for block in rest if not isinstance(block, ReasoningBlock)), None)
    if isinstance(following, ToolCallBlock):
        return following.provider_item_id is not None
    if isinstance(following, TextBlock | RefusalBlock):
        return "item_id" in load_extra(following.extra)
    return isinstance(following, OpaqueBlock)


def _reasoning(block: ReasoningBlock) -> dict[str, Json]:
    return {
        "type": "reasoning",
        "id": block.item_id,
        "summary": [{"type": "summary_text", "text": text} for text in block.summary],
        "encrypted_content": block.encrypted,
    } | load_extra(block.extra)


def _foreign(message: Message, ids: Mapping[str, str]) -> Iterator[dict[str, Json]]:
    notes = [media_note(block) for block in message.blocks if isinstance(block, MediaBlock)]
    refusals = [block.text for block in message.blocks if isinstance(block, RefusalBlock) and block.text]
    text = "\n".join(filter(None, [message.text, *refusals, *notes]))
    if text:
        yield {"role": "assistant", "content": text}
    yield from (_call(call, ids) for call in message.tool_calls)


def _call(call: ToolCallBlock, ids: Mapping[str, str]) -> dict[str, Json]:
    return {"type": "function_call", "call_id": ids[call.id], "name": call.name, "arguments": call.raw_args}


def _result(result: ToolResultBlock, ids: Mapping[str, str]) -> dict[str, Json]:
    output: Json = result_text(result)
    if any(isinstance(block, MediaBlock) for block in result.content):
        output = [_part(block) for block in result.content]
        if result.is_error:
            output.insert(0, _part(TextBlock(text=result_text(result.replace(content=())))))
    return {"type": "function_call_output", "call_id": ids[result.call_id], "output": output}


def _part(block: AnyBlock) -> dict[str, Json]:
    if not isinstance(block, MediaBlock):
        return {"type": "input_text", "text": getattr(block, "text", "")}
    if block.media == "audio":
        raise unsupported("openai responses", block, "an openai-chat: model for audio")
    kind = f"input_{block.media}"
    if block.media == "image":
        place = {"file_id": block.data} if block.source == "file_id" else {"image_url": data_url(block)}
        return {"type": kind, "detail": "auto"} | place
    if block.source == "file_id":
        return {"type": kind, "file_id": block.data}
    if block.source == "url":
        return {"type": kind, "file_url": block.data}
    return {"type": kind, "filename": block.name or "file", "file_data": data_url(block)}


def _read_item(item: Mapping[str, Json], index: int, response_id: str | None, provider: str) -> Iterator[AnyBlock]:
    match item.get("type"):
        case "message":
            status = item.get("status")
            extra = dump_extra({"item_id": item.get("id"), "status": None if status == "completed" else status})
            for part in item.get("content") or ():
                yield _read_part(part, item.get("phase"), extra, provider)
        case "reasoning":
            yield ReasoningBlock(
                text="".join(part.get("text") or "" for part in item.get("content") or ()),
                summary=tuple(part.get("text") or "" for part in item.get("summary") or ()),
                encrypted=item.get("encrypted_content"),
                item_id=item.get("id"),
                extra=dump_extra({name: value for name, value in item.items() if name not in _REASONING_FIELDS}),
            )
        case "function_call":
            yield ToolCallBlock(
                id=item.get("call_id") or answer_id(response_id, index),
                name=item.get("name") or "",
                raw_args=item.get("arguments") or "",
                provider_call_id=item.get("call_id"),
                provider_item_id=item.get("id"),
                extra=dump_extra({name: value for name, value in item.items() if name not in _CALL_FIELDS}),
            )
        case _:
            yield OpaqueBlock(provider=provider, raw=dump(item))


def _read_part(part: Mapping[str, Json], phase: str | None, extra: str | None, provider: str) -> AnyBlock:
    match part.get("type"):
        case "output_text":
            notes = tuple(dump(note) for note in part.get("annotations") or ())
            return TextBlock(text=part.get("text") or "", citations=notes, phase=phase, extra=extra)
        case "refusal":
            return RefusalBlock(text=part.get("refusal") or "", extra=extra)
        case _:
            return TextBlock(text=part.get("text") or "", phase=phase, extra=extra)


def _finish(response: Mapping[str, Json], blocks: Sequence[AnyBlock]) -> tuple[Finish, str]:
    reason = (response.get("incomplete_details") or {}).get("reason")
    if reason:
        return _INCOMPLETE.get(reason, "stop"), reason
    raw = response.get("status") or ""
    if any(isinstance(block, ToolCallBlock) for block in blocks):
        return "tool_use", raw
    if any(isinstance(block, RefusalBlock) for block in blocks):
        return "refusal", raw
    return "stop", raw


class _Events:
    """Events of a response; the last of them carries the whole of it."""

    def __init__(self) -> None:
        self._items: list[Json] = []
        self._calls: dict[Json, tuple[int, str]] = {}
        self._final: dict[str, Json] | None = None

    def feed(self, event: dict[str, Json]) -> Sequence[Delta]:
        """Take one event in; local servers leave out ``output_index``."""
        place = event.get("item_id") or event.get("output_index")
        match event.get("type"):
            case "response.output_text.delta":
                return [piece(event["delta"])]
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return [piece(event["delta"], kind="reasoning")]
            case "response.function_call_arguments.delta":
                index, tool = self._calls.get(place, (max(0, len(self._calls) - 1), ""))
                return [piece(event["delta"], kind="tool_call", call_index=index, tool=tool)]
            case "response.output_item.added" if event["item"].get("type") == "function_call":
                call = (len(self._calls), event["item"].get("name") or "")
                self._calls[event["item"].get("id") or event.get("output_index")] = call
                return [piece("", kind="tool_call", call_index=call[0], tool=call[1])]
            case "response.output_item.done":
                self._items.append(event["item"])
            case "response.completed" | "response.incomplete" | "response.failed":
                self._final = event["response"]
        return ()

    def so_far(self) -> dict[str, Json]:
        """What has come beside the content."""
        return self._final or {}

    def response(self) -> dict[str, Json] | None:
        """The whole response; None without its last event."""
        if self._final is not None and not self._final.get("output"):
            return self._final | {"output": self._items}
        return self._final
