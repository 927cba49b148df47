"""The agent of the kill tests. Every effect is a line in a ledger outside Temporal, before and after it happens."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from outlast import Agent, AgentOptions, ToolContext, tool
from outlast.middleware import human_in_the_loop
from outlast.model import Completion, ModelRequest
from outlast.testing.scripted import ScriptedModel, call, calls, text


def write(**line: Any) -> None:
    """One line, whole or not at all: a single append."""
    file = os.open(os.environ["CHAOS_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (json.dumps({**line, "pid": os.getpid()}) + "\n").encode())
    os.close(file)


async def effect(name: str, what: str, context: ToolContext) -> str:
    about = {"run": context.run_id, "tool": name, "what": what, "key": context.idempotency_key}
    write(**about, at="begin")
    await asyncio.sleep(0.15)
    write(**about, at="end")
    return f"{name} {what}"


@tool
async def fetch(what: str, context: ToolContext) -> str:
    """Fetch; may be repeated."""
    return await effect("fetch", what, context)


@tool(idempotent=False)
async def pay(what: str, context: ToolContext) -> str:
    """Pay; at most once."""
    return await effect("pay", what, context)


@tool(idempotent=False)
async def publish(what: str, context: ToolContext) -> str:
    """Publish; at most once, and only if somebody approves."""
    return await effect("publish", what, context)


SCRIPT = [
    calls(call("fetch", what="a"), call("fetch", what="b")),
    call("pay", what="rent"),
    call("fetch", what="c"),
    call("publish", what="page"),
    calls(call("fetch", what="d"), call("pay", what="tax")),
    text("done"),
]
"""What the model says in its first turn, its second, ..."""


def turn(request: ModelRequest) -> Completion:
    return SCRIPT[sum(message.role == "assistant" for message in request.messages)]


chaos = Agent(
    AgentOptions(
        name="chaos",
        model=ScriptedModel([turn] * 100_000),
        tools=[fetch, pay, publish],
        middleware=[human_in_the_loop({"publish": True})],
    )
)
