"""An agent whose tools write down that they ran, and how a test waits for its questions."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import (
    Agent,
    AgentOptions,
    tool,
)
from outlast.middleware import human_in_the_loop
from outlast.state import RunResult
from outlast.testing import MemoryRuntime, RunSuspended, ScriptedModel, call
from outlast.testing.scripted import Reply

RAN: list[tuple[str, Any]] = []
ASK = call("publish", title="draft")


@tool
def publish(title: str) -> str:
    """Publish."""
    RAN.append(("publish", title))
    return f"published {title}"


@tool
def spend(euros: int) -> str:
    """Spend."""
    RAN.append(("spend", euros))
    return f"spent {euros}"


@tool
def look(n: int) -> str:
    """Look."""
    RAN.append(("look", n))
    return f"saw {n}"


def run_of(replies: list[Reply], *middleware: object, state: dict[str, Any] | None = None) -> MemoryRuntime:
    stack = middleware or (human_in_the_loop({"publish": True, "spend": {"allowed_decisions": ["approve", "reject"]}}),)
    options = AgentOptions(name="a", model=ScriptedModel(replies), tools=[publish, spend, look], middleware=list(stack))
    return MemoryRuntime(Agent(options), "go", invocation_state=state)


async def suspended(run: MemoryRuntime) -> list[str]:
    """Run until it waits; the tool call ids it waits for."""
    with pytest.raises(RunSuspended):
        await run.result()
    return [item.tool_call_id for item in run.pending]


def results(result: RunResult) -> list[str]:
    return [found.text for message in result.messages for found in message.tool_results]
