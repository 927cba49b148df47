"""A small agent with hooks, what its tools answer, and a middleware that writes down when its hooks run."""

from __future__ import annotations

from typing import Any

from outlast import Agent, AgentOptions, HookContext, Middleware, tool
from outlast.middleware.contract import ModelNext, ToolNext
from outlast.model import Completion, ModelRequest
from outlast.testing import MemoryRuntime, ScriptedModel
from outlast.testing.scripted import Reply
from outlast.tools import ToolCall, ToolResult


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def double(a: int) -> int:
    """Double a number."""
    return 2 * a


def agent(replies: list[Reply], *middleware: object, **options: Any) -> Agent:
    tools = options.pop("tools", [add, double])
    model = options.pop("model", None) or ScriptedModel(replies)
    return Agent(AgentOptions(name="a", model=model, tools=tools, middleware=list(middleware), **options))


async def outcome(replies: list[Reply], *middleware: object, **options: Any) -> tuple[list[str], MemoryRuntime]:
    """The texts of the tool results, and the run."""
    run = MemoryRuntime(agent(replies, *middleware, **options), "go")
    result = await run.result()
    return [found.text for message in result.messages for found in message.tool_results], run


class Tracer(Middleware):
    """Writes down when its hooks are entered and left."""

    def __init__(self, name: str, trace: list[str]) -> None:
        self.name = name
        self._trace = trace

    def before_model(self, request: ModelRequest, ctx: HookContext) -> None:
        self._trace.append(f"before_model {self.name}")

    async def wrap_model(self, request: ModelRequest, call_next: ModelNext, ctx: HookContext) -> Completion:
        self._trace.append(f"enter model {self.name}")
        completion = await call_next(request)
        self._trace.append(f"leave model {self.name}")
        return completion

    async def after_model(self, completion: Completion, ctx: HookContext) -> None:
        self._trace.append(f"after_model {self.name}")

    def before_tool(self, call: ToolCall, ctx: HookContext) -> None:
        self._trace.append(f"before_tool {self.name}")

    async def around_tool(self, call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        self._trace.append(f"enter tool {self.name}")
        result = await call_next(call)
        self._trace.append(f"leave tool {self.name}")
        return result

    def after_tool(self, result: ToolResult, ctx: HookContext) -> None:
        self._trace.append(f"after_tool {self.name}")
