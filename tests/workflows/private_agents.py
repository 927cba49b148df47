"""Agents whose models, tools and people say a secret wherever they can say anything."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from outlast import Agent, AgentError, AgentOptions, HitlInterrupt, ToolContext, ToolRejection, tool
from outlast.errors import InvalidRequest
from outlast.messages import Message, ReasoningBlock, TextBlock, ToolCallBlock
from outlast.middleware import SubAgent, create_sub_agent_middleware, human_in_the_loop, pii_redact
from outlast.model import Completion, Delta, DeltaSink, ModelRequest

CANARY = "canary.7f3a@example.com"

got: list[Any] = []
"""What the tools were called with."""

shown: list[str] = []
"""What a watcher has seen of the answers while they were written."""


@tool
async def lookup(who: str, ctx: ToolContext) -> list[TextBlock]:
    """Look somebody up."""
    got.append(who)
    ctx.heartbeat({"looking for": CANARY})
    await asyncio.sleep(0.05)
    return [TextBlock(text=f"KEEP-result {CANARY[:9]}"), TextBlock(text=CANARY[9:])]


@tool
def crash() -> str:
    """Fail."""
    raise LookupError(f"KEEP-exception {CANARY}" + "x" * 3000)


@tool
def refuse() -> str:
    """Refuse."""
    raise ToolRejection(f"KEEP-rejection {CANARY}")


@tool
def ask() -> str:
    """Ask a person, once."""
    if "asked" in got:
        return f"asked about {CANARY}"
    got.append("asked")
    raise HitlInterrupt("ask", {}, description=f"KEEP-description {CANARY}")


@tool
def stop() -> str:
    """End the run."""
    raise AgentError("STOPPED", f"KEEP-failure {CANARY}")


@tool
def mail(to: str) -> str:
    """Send a mail."""
    got.append(to)
    return f"sent to {to}"


class Blabbing:
    """Answers from a script, slowly enough for its deltas to be seen, and every answer holds the secret."""

    name = "blabbing"

    def __init__(self, *turns: list[tuple[str, dict[str, Any]]] | Exception, waits: bool = False) -> None:
        self.turns = turns
        self.waits = waits
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        self.requests.append(request)
        asked = sum(message.role == "assistant" and bool(message.tool_calls) for message in request.messages)
        turn = self.turns[asked]
        if isinstance(turn, Exception):
            raise turn
        text = f"KEEP-completion for {CANARY}, gladly."
        if on_delta is not None:
            for start in range(0, len(text), 3):
                on_delta(Delta(text=text[start : start + 3]))
                await asyncio.sleep(0.01)
            while self.waits and "," not in "".join(shown):
                await asyncio.sleep(0.05)
        blocks: list[Any] = [ReasoningBlock(text=f"of {CANARY}", signature="s"), TextBlock(text=text)]
        blocks += [
            ToolCallBlock(id=f"c{asked}.{n}", name=name, raw_args=json.dumps(args))
            for n, (name, args) in enumerate(turn)
        ]
        return Completion(message=Message(role="assistant", blocks=tuple(blocks)))


def to_canary(name: str, *, marker: str = "KEEP-args") -> tuple[str, dict[str, Any]]:
    return name, {"to": f"{marker} {CANARY}"}


def support(at_edges: bool) -> tuple[Agent, Blabbing]:
    """An agent that goes through everything a run can go through."""
    model = Blabbing(
        [("lookup", {"who": CANARY}), ("crash", {}), ("refuse", {})],
        [to_canary("mail")],
        [to_canary("mail")],
        [("ask", {})],
        [("task", {"description": f"find {CANARY}", "subagent_type": "clerk"})],
        [],
        waits=True,
    )
    clerk = SubAgent(
        name="clerk", description="finds", model=Blabbing([("lookup", {"who": CANARY})], []), tools=[lookup]
    )
    middleware = [
        create_sub_agent_middleware(model, [clerk]),
        pii_redact("email", at_edges=at_edges),
        human_in_the_loop({"mail": True}),
    ]
    tools = [lookup, crash, refuse, ask, mail]
    return Agent(AgentOptions(name="support", model=model, tools=tools, middleware=middleware)), model


def failing(at_edges: bool) -> list[Agent]:
    """Agents whose runs end badly."""
    pii = pii_redact("email", at_edges=at_edges)
    refused = InvalidRequest(f"KEEP-provider 400: {CANARY} is not a model")
    return [
        Agent(AgentOptions(name="unheard", model=Blabbing(refused), middleware=[pii], on_error="fail")),
        Agent(AgentOptions(name="parked", model=Blabbing(refused), middleware=[pii])),
        Agent(AgentOptions(name="stopped", model=Blabbing([("stop", {})]), tools=[stop], middleware=[pii])),
    ]
