"""Tools that stop at a named point until their worker is killed; a worker with PASS set goes through."""

from __future__ import annotations

import asyncio
import os

from outlast import Agent, AgentOptions, ToolContext, tool
from outlast.messages import ToolCallBlock, assistant
from outlast.middleware import human_in_the_loop
from outlast.model import Completion, DeltaSink, ModelRequest
from tests.acceptance import ledger

POINTS = ("before", "within", "after")
"""Before the effect, between its halves, and after it but before its report."""


async def effect(point: str, name: str, context: ToolContext) -> str:
    for place, kind in zip(POINTS, ("begin", "end", None), strict=True):
        if point == place:
            await hold(name, context)
        if kind is not None:
            ledger.write(kind, name, context.run_id, context.call_id, context.idempotency_key, context.attempt)
    return "did it"


async def hold(name: str, context: ToolContext) -> None:
    if not os.environ.get("PASS"):
        ledger.write("hold", name, context.run_id, context.call_id, context.idempotency_key, context.attempt)
        await asyncio.sleep(3600)


@tool
async def repeatable(point: str, context: ToolContext) -> str:
    """May be done again."""
    return await effect(point, "repeatable", context)


@tool(idempotent=False)
async def once(point: str, context: ToolContext) -> str:
    """Must not be done again."""
    return await effect(point, "once", context)


@tool(idempotent=False)
async def gated(point: str, context: ToolContext) -> str:
    """Must not be done again, and only with a person's leave."""
    return await effect(point, "gated", context)


class Follower:
    """Calls the tool, at the point, that the user names; hangs in the second model call if asked to."""

    name = "precise:follower"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        name, point = request.messages[0].text.split()
        if len(request.messages) > 1:
            return Completion(message=assistant("done"))
        if name == "model":
            if not os.environ.get("PASS"):
                ledger.write("hold", "model", "run-model", "", "", 1)
                await asyncio.sleep(3600)
            return Completion(message=assistant("done"))
        block = ToolCallBlock(id="c", name=name, raw_args=f'{{"point": "{point}"}}')
        return Completion(message=assistant([block]), finish="tool_use")


precise = Agent(
    AgentOptions(
        name="precise",
        model=Follower(),
        tools=[repeatable, once, gated],
        middleware=[human_in_the_loop({"gated": True})],
    )
)
