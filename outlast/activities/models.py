"""The activity ``call_model``: builds the request from its chunks, asks the model once, returns the completion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from outlast.activities.failures import raise_model_failure, raise_setup_failure, refuse_unreadable
from outlast.activities.filters import filtered
from outlast.activities.heartbeats import heartbeats
from outlast.activities.sizes import max_answer_bytes, too_large
from outlast.errors import MalformedResponse, ModelError, ToolRejection, UnknownAgent
from outlast.messages import Json, Message, load_messages, repair_sequence
from outlast.middleware.edge_filter import TextStream
from outlast.model import (
    Completion,
    Delta,
    DeltaSink,
    Model,
    ModelRequest,
    ModelSettings,
    ResponseFormat,
    ToolSpec,
    check_request,
    completion_fault,
)
from outlast.registry import AgentRegistry

_log = logging.getLogger("outlast")
CALL_MODEL = "call_model"
DELTA_TAIL = 64_000


class ModelCallHead(BaseModel):
    """The first argument of ``call_model``; the others are the options and the chunks of the conversation."""

    agent: str
    model: str
    stream: bool = False


class ModelCallOptions(BaseModel):
    """The second argument: what rarely changes from step to step, so that storage keeps it once."""

    tools: tuple[ToolSpec, ...] = ()
    response_format: ResponseFormat | None = None
    settings: ModelSettings = ModelSettings()


class DeltaText(BaseModel):
    """What a heartbeat of a streaming call carries: everything written so far in this attempt, or its end.

    Attributes:
        length: Characters written so far; ``text`` is the last of them where it is long.
    """

    attempt: int
    length: int
    text: str


class ModelActivities:
    """``call_model`` for the agents of one worker."""

    def __init__(self, agents: AgentRegistry, resolve: Callable[[str], Model]) -> None:
        self._agents = agents
        self._resolve = resolve
        self._resolved: dict[str, Model] = {}

    @activity.defn(name=CALL_MODEL)
    async def call_model(self, head: Any, options: Any, *chunks: Any) -> RawValue:  # noqa: ANN401 - decoded JSON
        """One model call. Arguments: :class:`ModelCallHead`, :class:`ModelCallOptions`, arrays of messages."""
        refuse_unreadable(head, options, *chunks)
        call = ModelCallHead.model_validate(head)
        model = self._model(call)
        fixed = ModelCallOptions.model_validate(options)
        messages = tuple(message for chunk in chunks for message in load_messages(chunk))
        edges = self._agents.edges(call.agent)
        writer = _DeltaWriter(activity.info().attempt, edges.streams())
        try:
            async with heartbeats(writer.details if call.stream else tuple):
                request = ModelRequest(
                    messages=_sound(await filtered(edges, lambda: edges.sent(messages)), call.agent),
                    tools=fixed.tools,
                    response_format=fixed.response_format,
                    settings=fixed.settings,
                )
                answer = await _ask(model, request, writer.add if call.stream else None)
                try:
                    completion = await filtered(edges, lambda: edges.completion(answer))
                except ToolRejection as error:
                    vars(error)["usage"] = answer.usage
                    raise
            writer.flush()
            data = completion.model_dump_json(exclude_none=True).encode()
            if len(data) > max_answer_bytes():  # asked again it would be as long, and cost as much
                refusal = ModelError(too_large("the model's answer", len(data)), retryable=False)
                refusal.__dict__["usage"] = answer.usage
                raise refusal
            return json_value(data)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            raise_model_failure(error, edges)

    def _model(self, call: ModelCallHead) -> Model:
        try:
            found = self._agents.get(call.agent).resolve_ref(call.model)
            if not isinstance(found, str):
                return found
            if found not in self._resolved:
                self._resolved[found] = self._resolve(found)
            return self._resolved[found]
        except (LookupError, UnknownAgent) as error:
            raise_setup_failure(f"model of agent {call.agent!r}", str(error.args[0]))
        except BaseException as error:
            raise_model_failure(error)


def _sound(messages: tuple[Message, ...], agent: str) -> tuple[Message, ...]:
    """The conversation without halves of pairs, whatever a hook left of it: each call has one result (D11)."""
    repaired = repair_sequence(messages)
    if repaired is not messages:
        _log.warning("agent %r: a hook left half a pair of call and result in a request; it was made whole", agent)
    return repaired


async def _ask(model: Model, request: ModelRequest, sink: DeltaSink | None) -> Completion:
    check_request(request)  # here, where it is cheap, and not in the workflow, where it would grow with the run
    completion = await model.complete(request, sink)
    if not isinstance(completion, Completion):
        raise MalformedResponse(
            f"{type(model).__name__}.complete returned {type(completion).__name__}, not a Completion"
        )
    if (fault := completion_fault(completion)) is not None:
        raise MalformedResponse(f"{type(model).__name__}.complete: {fault}")
    return completion


class _DeltaWriter:
    """Collects text deltas; every new one is heartbeaten (Temporal throttles how often they are sent)."""

    def __init__(self, attempt: int, streams: Sequence[TextStream] = ()) -> None:
        self._attempt = attempt
        self._streams = streams
        self._parts: list[str] = []
        self._length = 0

    def add(self, delta: Delta) -> None:
        if delta.kind == "text":
            text = delta.text
            for stream in self._streams:
                text = stream.push(text)
            self._show(text)

    def flush(self) -> None:
        """The answer is complete: show what its streams still hold back."""
        text = ""
        for stream in self._streams:
            text = stream.push(text) + stream.flush()
        self._show(text)

    def _show(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._length += len(text)
            activity.heartbeat(*self.details())

    def details(self) -> tuple[Mapping[str, Json], ...]:
        if not self._parts:
            return ()
        text = "".join(self._parts)[-DELTA_TAIL:]
        self._parts = [text]
        return (DeltaText(attempt=self._attempt, length=self._length, text=text).model_dump(),)


def json_value(data: bytes) -> RawValue:
    """JSON text as a payload, encoded once."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))
