"""What goes to a language model and what comes back; the protocol that every model implements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import not_
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel, Field

from outlast.errors import InvalidRequest
from outlast.messages import Json, Message, Value, sequence_fault
from outlast.usage import Usage

Finish: TypeAlias = Literal[
    "stop", "length", "tool_use", "content_filter", "refusal", "context_overflow", "pause", "error"
]


class ToolSpec(Value):
    """A tool as the model sees it: name, description, JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Json] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ResponseFormat(Value):
    """Structured output: the final text must be JSON that fits ``json_schema``."""

    name: str = "response"
    json_schema: dict[str, Json]
    strict: bool = True


class ModelSettings(Value):
    """Knobs of one call; None leaves the provider's default. ``extra`` is merged into the request body as it is."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: Literal["auto", "required", "none"] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    extra: dict[str, Json] = Field(default_factory=dict)


class ModelRequest(Value):
    """One model call, as ``before_model`` and ``wrap_model`` hooks see it.

    Attributes:
        messages: System message first, if any; a sound sequence (:func:`outlast.messages.sequence_fault`).
        tools: What the model may call.
        model: The model to ask instead of the agent's own, for this call: a model string, or what
            ``ctx.model_ref(model)`` gives for a model object.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    response_format: ResponseFormat | None = None
    settings: ModelSettings = ModelSettings()
    model: str = Field(default="", exclude_if=not_)


class Completion(Value):
    """A model's answer.

    Attributes:
        finish: Normalised reason. Whether tools run is decided by the presence of calls, not by this.
        finish_raw: The provider's own word.
        model: The model that served, as the provider names it.
    """

    message: Message
    finish: Finish = "stop"
    finish_raw: str = ""
    usage: Usage = Usage()
    model: str = ""


class Delta(BaseModel):
    """A piece of an answer while it is being written. Provisional: a new attempt starts over."""

    kind: Literal["text", "reasoning", "tool_call"] = "text"
    text: str = ""
    call_index: int = 0
    tool: str = ""


DeltaSink: TypeAlias = Callable[[Delta], None]


@runtime_checkable
class Model(Protocol):
    """A language model. Lives on the worker; only its name ever enters a workflow.

    Attributes:
        name: ``provider:model``, for people and for usage records.
    """

    @property
    def name(self) -> str:
        """``provider:model``."""
        ...

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        """Answer once, without retrying; streams when ``on_delta`` is given.

        Raises:
            ModelError: Any failure, as the subclass that names its kind.
        """
        ...


def check_request(request: ModelRequest) -> None:
    """The one check before anything is sent.

    Raises:
        InvalidRequest: The conversation is unsound, empty, or names a tool twice.
    """
    fault = sequence_fault(request.messages)
    if fault is None and not any(message.role != "system" for message in request.messages):
        fault = "there is no message for the model to answer"
    names = [tool.name for tool in request.tools]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if fault is None and doubles:
        fault = f"tools are named twice: {', '.join(doubles)}"
    if fault is not None:
        raise InvalidRequest(f"the request was not sent: {fault}", error_class="InvalidSequence")


def completion_fault(completion: Completion) -> str | None:
    """Why this answer cannot become part of a conversation, or None."""
    if completion.message.role != "assistant":
        return f"an answer is an assistant message, not one of role {completion.message.role!r}"
    if completion.message.tool_results:
        return "an answer holds no tool results"
    return None


def request_fault(request: ModelRequest) -> str | None:
    """Why this request cannot be sent, as far as it can be told without walking through the conversation."""
    parts: tuple[tuple[Sequence[object], type], ...] = ((request.messages, Message), (request.tools, ToolSpec))
    wrong = [item for items, kind in parts if {*map(type, items)} - {kind} for item in items if type(item) is not kind]
    return f"{wrong[0]!r:.80} is no message and no tool" if wrong else None


def tool_index(tools: tuple[ToolSpec, ...]) -> Mapping[str, ToolSpec]:
    """Tools by name."""
    return {tool.name: tool for tool in tools}
