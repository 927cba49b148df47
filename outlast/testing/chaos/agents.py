"""The agent under chaos, and its specialist. Every effect is in the ledger."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from outlast.agent import Agent, AgentOptions
from outlast.middleware import create_sub_agent_middleware, human_in_the_loop, model_retry
from outlast.models.openai_chat import OpenAIChat
from outlast.testing.chaos import ledger
from outlast.tools import ToolContext, tool

MODEL_VARIABLE = "OUTLAST_CHAOS_MODEL"
SECONDS = 0.1
PADDING = "x" * 6000
"""Makes results large enough for storage."""

Turn = list[tuple[str, dict[str, Any]]]

MAIN: list[Turn] = [
    [("fetch", {"what": "a"}), ("fetch", {"what": "b"})],
    [("pay", {"what": "rent"})],
    [("fetch", {"what": "c"})],
    [("publish", {"what": "page"})],
    [("task", {"description": "look into it", "subagent_type": "specialist"})],
    [("fetch", {"what": "d"}), ("pay", {"what": "tax"})],
    [],
]
"""The tool calls of the model's first turn, its second, ...; none ends the run."""

SPECIALIST: list[Turn] = [[("fetch", {"what": "x"})], [("publish", {"what": "note"})], []]

INSTRUCTIONS = {"main": MAIN, "specialist": SPECIALIST}
"""What an agent is told, and what its model then does."""

AT_MOST_ONCE = ("pay", "publish")


async def effect(name: str, what: str, context: ToolContext) -> str:
    """Something that takes a moment, with a line before and after."""
    about = (context.run_id, name, what, context.idempotency_key)
    ledger.write("begin", *about)
    await asyncio.sleep(SECONDS)
    ledger.write("end", *about)
    return f"{name} {what} {PADDING}"


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


model = OpenAIChat("chaos", base_url_env=MODEL_VARIABLE, provider="chaos", key_required=False, timeout=20.0)
retries = model_retry(max_retries=12, initial_delay_ms=100, max_delay_ms=1000)
approval = human_in_the_loop({"publish": True})
specialist = {
    "name": "specialist",
    "description": "looks into it",
    "instructions": "specialist",
    "tools": [fetch, publish],
    "middleware": [retries, approval],
}
chaos = Agent(
    AgentOptions(
        name="chaos",
        model=model,
        instructions="main",
        tools=[fetch, pay, publish],
        middleware=[retries, create_sub_agent_middleware(model, [specialist]), approval],
    )
)


def settings_for(ledger_file: str, model_url: str) -> dict[str, str]:
    """The environment that a worker with these agents needs."""
    return {**os.environ, ledger.VARIABLE: ledger_file, MODEL_VARIABLE: model_url}
