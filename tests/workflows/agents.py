"""Agents that a module holds by name, so that their histories can be replayed in another process."""

from __future__ import annotations

import os

from outlast import Agent, AgentOptions, HookContext, create_middleware, tool
from outlast.middleware import human_in_the_loop
from outlast.testing.scripted import Reply, ScriptedModel, call, calls
from outlast.tools import ToolCall


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(idempotent=False)
async def publish(title: str) -> str:
    """Publish a page."""
    return f"published {title}"


def count(call: ToolCall, ctx: HookContext) -> None:
    """Counts calls in the run's state, and notes when and with which luck."""
    ctx.invocation_state["calls"] = ctx.invocation_state.get("calls", 0) + 1
    ctx.invocation_state["seen"] = [ctx.now().isoformat(), ctx.random.random(), str(ctx.uuid())]


GREETING = os.environ.get("GREETING", "hello")  # a module may read its environment when it is imported
SCRIPT: list[Reply] = [call("add", a=1, b=2), calls(call("publish", title="x"), call("add", a=2, b=2)), "done"]

editor = Agent(
    AgentOptions(
        name="editor",
        instructions=GREETING,
        model=ScriptedModel(SCRIPT * 20),
        tools=[add, publish],
        middleware=[create_middleware("counter", before_tool=count), human_in_the_loop({"publish": True})],
    )
)
