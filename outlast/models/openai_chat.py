"""OpenAI's Chat Completions API, and the servers that speak it: Ollama, vLLM, llama.cpp.

Facts: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from outlast.messages import (
    AnyBlock,
    Json,
    MediaBlock,
    Message,
    Origin,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCallBlock,
)
from outlast.model import Completion, Delta, DeltaSink, Finish, ModelRequest, ModelSettings
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
    mime_of,
    object_args,
    piece,
    present,
    result_text,
    unsupported,
    wire_ids,
)
from outlast.usage import Usage

_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "content_filter",
}
_REASONING_FIELDS = ("reasoning_content", "reasoning")
_ID_CHARS = 40


class OpenAIChat:
    """A model behind Chat Completions.

    Args:
        model: The model's name at the provider.
        api_key: The key; without one, the variable ``api_key_env`` of the worker is read at each call.
        base_url: Where the API is, up to and with ``/v1``; without one, ``base_url_env``, then OpenAI.
        timeout: Seconds without a byte from the provider before the call is given up.
        provider: Who serves; recorded with each answer, and what a name begins with.
        key_required: Whether a missing key is an error; local servers need none.
        max_tokens_field: ``max_tokens`` for servers that do not know OpenAI's newer name.
        resend_reasoning: Whether ``reasoning_content`` of earlier answers goes back to the server that sent it.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        base_url: str | None = None,
        base_url_env: str = "OPENAI_BASE_URL",
        default_url: str = "https://api.openai.com/v1",
        timeout: float = 600.0,
        provider: str = "openai",
        key_required: bool = True,
        max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens",
        resend_reasoning: bool = True,
    ) -> None:
        self.endpoint = Endpoint(
            provider=provider,
            api="chat",
            model=model,
            default_url=default_url,
            base_url=base_url,
            base_url_env=base_url_env,
            api_key=api_key,
            api_key_env=(api_key_env,) if api_key_env else (),
            key_required=key_required,
            timeout=timeout,
        )
        self.max_tokens_field = max_tokens_field
        self.resend_reasoning = resend_reasoning

    @property
    def name(self) -> str:
        """``openai-chat:MODEL``, or ``PROVIDER:MODEL`` for other servers."""
        provider = "openai-chat" if self.endpoint.provider == "openai" else self.endpoint.provider
        return f"{provider}:{self.endpoint.model}"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        """Answer once, without retrying; streams when ``on_delta`` is given.

        Raises:
            ModelError: Any failure, as the subclass that names its kind.
        """
        return await exchange(self.endpoint, self, request, on_delta)

    def path(self, stream: bool) -> str:
        """The path after the base URL."""
        return "/chat/completions"

    def headers(self, key: str) -> Mapping[str, str]:
        """A bearer token, if there is a key."""
        return {"authorization": f"Bearer {key}"} if key else {}

    def render(self, request: ModelRequest, stream: bool = False) -> dict[str, Json]:
        """The request's body."""
        body: dict[str, Json] = {"model": self.endpoint.model, "messages": list(self._messages(request.messages))}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
                for tool in request.tools
            ]
        if request.response_format:
            form = request.response_format
            schema = {"name": form.name, "schema": form.json_schema, "strict": form.strict}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return merged(body | self._settings(request.settings, bool(request.tools)), request.settings.extra)

    def parse(self, response: dict[str, Json]) -> Completion:
        """The completion in an answer's body."""
        choice = response["choices"][0]
        raw = choice.get("finish_reason") or ""
        message = choice.get("message") or {}
        blocks = tuple(_blocks(message, response.get("id")))
        origin = Origin(
            provider=self.endpoint.provider,
            api="chat",
            model=response.get("model") or self.endpoint.model,
            response_id=response.get("id"),
        )
        finish = _FINISH.get(raw, "stop")
        if finish == "stop" and message.get("refusal"):
            finish = "refusal"
        if finish == "stop" and any(isinstance(block, ToolCallBlock) for block in blocks):
            finish = "tool_use"
        return Completion(
            message=Message(role="assistant", blocks=blocks, origin=origin),
            finish=finish,
            finish_raw=raw,
            usage=self.usage(response),
            model=origin.model,
        )

    def usage(self, response: dict[str, Json]) -> Usage:
        """What an answer, or as much as came of it, says that it has used up."""
        return _usage(response.get("usage") or {})

    def assembler(self) -> Assembler:
        """A fresh assembler for one streamed answer."""
        return _Chunks()

    def _settings(self, settings: ModelSettings, tools: bool) -> dict[str, Json]:
        return present(
            temperature=settings.temperature,
            top_p=settings.top_p,
            stop=list(settings.stop) or None,
            seed=settings.seed,
            reasoning_effort=settings.reasoning_effort,
            tool_choice=settings.tool_choice if tools else None,
            parallel_tool_calls=settings.parallel_tool_calls if tools else None,
            **{self.max_tokens_field: settings.max_output_tokens},
        )

    def _messages(self, messages: Sequence[Message]) -> Iterator[dict[str, Json]]:
        ids = wire_ids(messages, self.endpoint.provider, "chat", _ID_CHARS)
        shown: list[dict[str, Json]] = []
        for message in in_call_order(messages):
            if shown and message.role != "tool":
                yield {"role": "user", "content": shown}
                shown = []
            match message.role:
                case "system":
                    yield {"role": "system", "content": message.text}
                case "user":
                    yield {"role": "user", "content": _user_content(message)}
                case "assistant":
                    yield self._assistant(message, ids)
                case "tool":
                    result = message.tool_results[0]
                    yield {"role": "tool", "tool_call_id": ids[result.call_id], "content": result_text(result)}
                    media = [_part(block) for block in result.content if isinstance(block, MediaBlock)]
                    shown += [{"type": "text", "text": f"From the result of {result.name}:"}, *media] if media else []
        if shown:
            yield {"role": "user", "content": shown}

    def _assistant(self, message: Message, ids: Mapping[str, str]) -> dict[str, Json]:
        own = is_own(message, self.endpoint.provider, "chat")
        notes = [media_note(block) for block in message.blocks if isinstance(block, MediaBlock)]
        refusals = [block.text for block in message.blocks if isinstance(block, RefusalBlock)]
        calls = [self._call(call, ids, own) for call in message.tool_calls]
        text = "\n".join(filter(None, [message.text, *notes]))
        rendered: dict[str, Json] = {"role": "assistant", "content": text or (None if calls or refusals else "")}
        if refusals:
            rendered["refusal"] = "".join(refusals)
        if calls:
            rendered["tool_calls"] = calls
        if own and self.resend_reasoning:
            for block in message.blocks:
                if isinstance(block, ReasoningBlock):
                    rendered |= load_extra(block.extra)
        return rendered

    def _call(self, call: ToolCallBlock, ids: Mapping[str, str], own: bool) -> dict[str, Json]:
        # OpenAI takes any text as arguments; the compatible servers parse it and refuse what is no JSON object.
        strict = self.endpoint.provider != "openai"
        arguments = object_args(call).text if strict else call.raw_args
        rendered = {"id": ids[call.id], "type": "function", "function": {"name": call.name, "arguments": arguments}}
        return rendered | load_extra(call.extra) if own else rendered


def _user_content(message: Message) -> str | list[dict[str, Json]]:
    if all(isinstance(block, TextBlock) for block in message.blocks):
        return message.text
    return [_part(block) for block in message.blocks]


def _part(block: AnyBlock) -> dict[str, Json]:
    if not isinstance(block, MediaBlock):
        return {"type": "text", "text": getattr(block, "text", "")}
    if block.source == "file_id":
        return {"type": "file", "file": {"file_id": block.data}}
    if block.media == "image":
        return {"type": "image_url", "image_url": {"url": data_url(block)}}
    if block.source == "url":
        raise unsupported("openai chat", block, "base64 data")
    if block.media == "audio":
        form = {"wav": "wav", "x-wav": "wav", "mpeg": "mp3", "mp3": "mp3"}.get(mime_of(block).partition("/")[2])
        if form is None:
            raise unsupported("openai chat", block, "audio/wav or audio/mpeg")
        return {"type": "input_audio", "input_audio": {"data": block.data, "format": form}}
    return {"type": "file", "file": {"filename": block.name or "file", "file_data": data_url(block)}}


def _blocks(message: Mapping[str, Json], response_id: str | None) -> Iterator[AnyBlock]:
    field = next((name for name in _REASONING_FIELDS if message.get(name)), None)
    if field:
        fields = {field: message[field], "reasoning_details": message.get("reasoning_details")}
        yield ReasoningBlock(text=message[field], extra=dump_extra(fields))
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    if content:
        yield TextBlock(text=content, citations=tuple(dump(note) for note in message.get("annotations") or ()))
    if message.get("refusal"):
        yield RefusalBlock(text=message["refusal"])
    for index, call in enumerate(message.get("tool_calls") or ()):
        yield _read_call(call, index, response_id)


def _read_call(call: Mapping[str, Json], index: int, response_id: str | None) -> ToolCallBlock:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    known = {"id", "type", "function", "index"}
    return ToolCallBlock(
        id=call.get("id") or answer_id(response_id, index),
        name=function.get("name") or "",
        raw_args=arguments if isinstance(arguments, str) else dump(arguments or {}),
        provider_call_id=call.get("id") or None,
        extra=dump_extra({name: value for name, value in call.items() if name not in known}),
    )


def _usage(usage: Mapping[str, Json]) -> Usage:
    """Cached input is inside ``prompt_tokens``, reasoning inside ``completion_tokens``."""
    inputs = usage.get("prompt_tokens_details") or {}
    outputs = usage.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("prompt_tokens") or 0,
        cached_input_tokens=inputs.get("cached_tokens") or 0,
        cache_write_tokens=inputs.get("cache_write_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or 0,
        reasoning_tokens=outputs.get("reasoning_tokens") or 0,
        model_calls=1,
    )


class _Chunks:
    """``chat.completion.chunk`` objects, put together to a ``chat.completion``."""

    def __init__(self) -> None:
        self._head: dict[str, Json] = {}
        self._texts: dict[str, list[str]] = {}
        self._rest: dict[str, list[Json]] = {}
        self._calls: dict[int, dict[str, Json]] = {}
        self._finish: str | None = None

    def feed(self, event: dict[str, Json]) -> Sequence[Delta]:
        """Take one chunk in."""
        for name in ("id", "model", "usage"):
            if event.get(name):
                self._head[name] = event[name]
        deltas: list[Delta] = []
        for choice in (event.get("choices") or ())[:1]:
            self._finish = choice.get("finish_reason") or self._finish
            delta = choice.get("delta") or {}
            deltas += self._text_deltas(delta)
            deltas += [self._call_delta(call) for call in delta.get("tool_calls") or ()]
        return deltas

    def so_far(self) -> dict[str, Json]:
        """What has come beside the content."""
        return self._head

    def response(self) -> dict[str, Json] | None:
        """The ``chat.completion``; None without a finish reason."""
        if self._finish is None:
            return None
        message: dict[str, Json] = {name: "".join(parts) for name, parts in self._texts.items()} | self._rest
        if self._calls:
            calls = [self._calls[index] for index in sorted(self._calls)]
            message["tool_calls"] = [
                call
                | {"function": {"name": call["function"]["name"], "arguments": "".join(call["function"]["arguments"])}}
                for call in calls
            ]
        return self._head | {"choices": [{"finish_reason": self._finish, "message": message}]}

    def _text_deltas(self, delta: Mapping[str, Json]) -> Iterator[Delta]:
        for name in ("content", "refusal", *_REASONING_FIELDS):
            if delta.get(name):
                self._texts.setdefault(name, []).append(delta[name])
        for name in ("annotations", "reasoning_details"):
            if delta.get(name):
                self._rest.setdefault(name, []).extend(delta[name])
        reasoning = next((delta[name] for name in _REASONING_FIELDS if delta.get(name)), "")
        if reasoning:
            yield piece(reasoning, kind="reasoning")
        if delta.get("content"):
            yield piece(delta["content"])

    def _call_delta(self, part: Mapping[str, Json]) -> Delta:
        index = part.get("index")
        if not isinstance(index, int):
            index = len(self._calls) if part.get("id") or not self._calls else max(self._calls)
        call = self._calls.setdefault(index, {"function": {"name": "", "arguments": []}})
        function = part.get("function") or {}
        arguments = function.get("arguments") or ""
        call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
        call["function"]["arguments"].append(arguments if isinstance(arguments, str) else dump(arguments))
        for name, value in part.items():
            if name not in ("index", "function") and value is not None:
                call[name] = value
        return piece(
            call["function"]["arguments"][-1], kind="tool_call", call_index=index, tool=call["function"]["name"]
        )
