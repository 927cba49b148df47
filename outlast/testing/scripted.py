"""A model that says what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeAlias

from outlast.messages import Json, Message, TextBlock, ToolCallBlock, assistant
from outlast.model import Completion, Delta, DeltaSink, ModelRequest
from outlast.usage import Usage

Reply: TypeAlias = Completion | Message | str | BaseException | Callable[[ModelRequest], "Reply"]

_USAGE = Usage(input_tokens=10, output_tokens=5)


class ScriptExhausted(AssertionError):
    """The script has no more replies: the agent made a model call the test did not expect."""


def text(content: str, *, usage: Usage = _USAGE) -> Completion:
    """A completion that is plain text, and so ends a run."""
    return Completion(message=assistant(content), finish="stop", usage=usage, model="scripted")


def call(name: str, /, **args: Json) -> Completion:
    """A completion that asks for one tool call: ``call("add", a=1, b=2)``."""
    return _asking([_block(name, args, 1)])


def calls(*completions: Completion) -> Completion:
    """A completion that asks for several calls at once: ``calls(call("a"), call("b"))``."""
    blocks = [block for completion in completions for block in completion.message.tool_calls]
    return _asking([block.replace(id=f"scripted_{n}") for n, block in enumerate(blocks, start=1)])


def _asking(blocks: list[ToolCallBlock]) -> Completion:
    return Completion(message=assistant(tuple(blocks)), finish="tool_use", usage=_USAGE, model="scripted")


def _block(name: str, args: dict[str, Json], number: int) -> ToolCallBlock:
    return ToolCallBlock(id=f"scripted_{number}", name=name, raw_args=json.dumps(args))


class ScriptedModel:
    """Replies in order: completions, texts, exceptions to raise, or functions of the request that give one of these.

    Attributes:
        requests: Each request as a provider would have got it, oldest first.
    """

    def __init__(self, replies: Iterable[Reply], *, name: str = "scripted") -> None:
        self._replies = list(replies)
        self._name = name
        self.requests: list[ModelRequest] = []

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        """The next reply.

        Raises:
            ScriptExhausted: There is none; the message shows the last message of the request.
        """
        self.requests.append(request)
        number = len(self.requests)
        if number > len(self._replies):
            last = request.messages[-1]
            raise ScriptExhausted(
                f"{self._name}: call {number} of a script of {len(self._replies)}; the request ends with "
                f"{last.role}: {(last.text or str(last.blocks))[:200]!r}"
            )
        completion = _completion(self._replies[number - 1], request)
        if on_delta is not None:
            for block in completion.message.blocks:
                if isinstance(block, TextBlock):
                    for word in block.text.split(" "):
                        on_delta(Delta(text=word + " "))
        return completion


def _completion(reply: Reply, request: ModelRequest) -> Completion:
    if isinstance(reply, BaseException):
        raise reply
    if isinstance(reply, str):
        return text(reply)
    if isinstance(reply, Message):
        return Completion(message=reply, usage=_USAGE, model="scripted")
    if isinstance(reply, Completion):
        return reply
    return _completion(reply(request), request)
