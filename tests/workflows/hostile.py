"""Every way to raise, return or stall at every hook point, with a switch to end it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from outlast import Agent, AgentOptions, HookContext, tool
from outlast.model import Completion, ModelRequest
from outlast.testing import ScriptedModel, call, calls
from outlast.testing.scripted import text
from outlast.tools import ToolCall, ToolResult


class OwnBase(BaseException):
    """A base exception of the user's own."""


class Unprintable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("ha")


def bottomless(depth: int = 0) -> int:
    return bottomless(depth + 1) + 1


def raiser(kind: Callable[..., BaseException], *args: Any) -> Callable[[], None]:
    def act() -> None:
        raise kind(*args)

    return act


HOSTILE: dict[str, Callable[[], Any]] = {
    "ValueError": raiser(ValueError, "boom"),
    "OwnBase": raiser(OwnBase, "boom"),
    "SystemExit": raiser(SystemExit, 3),
    "KeyboardInterrupt": raiser(KeyboardInterrupt),
    "GeneratorExit": raiser(GeneratorExit),
    "CancelledError": raiser(asyncio.CancelledError),
    "StopIteration": raiser(StopIteration, 1),
    "StopAsyncIteration": raiser(StopAsyncIteration),
    "ExceptionGroup": raiser(ExceptionGroup, "many", [ValueError("a"), OSError("b")]),
    "BaseExceptionGroup": raiser(BaseExceptionGroup, "many", [KeyboardInterrupt(), ValueError("a")]),
    "RecursionError": bottomless,
    "MemoryError": raiser(MemoryError),
    "surrogate": raiser(ValueError, "bad \ud800 text"),
    "nul": raiser(ValueError, "a\0b"),
    "5 MB": raiser(ValueError, "x" * 5_000_000),
    "unprintable": raiser(Unprintable),
    "wrong return": lambda: "a text",
}
POINTS = ["before_model", "wrap_model", "after_model", "before_tool", "around_tool", "after_tool"]


class Hostile:
    """Does its worst at one hook point until it is told to stop."""

    name = "hostile"

    def __init__(self, point: str, act: Callable[[], Any]) -> None:
        self._point = point
        self._act = act
        self.calm = False

    def _maybe(self, point: str) -> Any:
        return self._act() if point == self._point and not self.calm else None

    def before_model(self, request: ModelRequest, ctx: HookContext) -> Any:
        return self._maybe("before_model")

    async def wrap_model(self, request: ModelRequest, call_next: Any, ctx: HookContext) -> Completion:
        return self._maybe("wrap_model") or await call_next(request)  # type: ignore[no-any-return]

    async def after_model(self, completion: Completion, ctx: HookContext) -> Any:
        return self._maybe("after_model")

    async def before_tool(self, call: ToolCall, ctx: HookContext) -> Any:
        return self._maybe("before_tool")

    async def around_tool(self, call: ToolCall, call_next: Any, ctx: HookContext) -> ToolResult:
        return self._maybe("around_tool") or await call_next(call)  # type: ignore[no-any-return]

    def after_tool(self, result: ToolResult, ctx: HookContext) -> Any:
        return self._maybe("after_tool")


@tool
async def act(x: str) -> str:
    """Act."""
    return f"did {x}"


def answer(request: ModelRequest) -> Completion:
    """Three calls at once, then one, then the end; whatever was asked before."""
    turns = sum(message.role == "assistant" for message in request.messages)
    if turns == 0:
        return calls(*(call("act", x=x) for x in "abc"))
    return call("act", x="d") if turns == 1 else text("done")


def hostile_agents() -> dict[str, tuple[Agent, Hostile]]:
    """An agent per hook point and way."""
    found: dict[str, tuple[Agent, Hostile]] = {}
    for point in POINTS:
        for way, misdeed in HOSTILE.items():
            hostile = Hostile(point, misdeed)
            name = f"{point} {way}"
            options = AgentOptions(
                name=name,
                model=ScriptedModel([answer] * 30),
                tools=[act],
                middleware=[hostile],
                model_timeout_seconds=20,
            )
            found[name] = (Agent(options), hostile)
    return found


def stall() -> None:
    """Longer than Temporal lets workflow code run."""
    end = time.perf_counter() + 2.6
    while time.perf_counter() < end:
        pass
