"""Agents that say a marker of its own in every place where a run can say anything."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from outlast import Agent, AgentError, AgentOptions, HitlInterrupt, HookContext, ToolContext, side_effect, tool
from outlast.errors import InvalidRequest
from outlast.messages import Message, ReasoningBlock, TextBlock, ToolCallBlock
from outlast.middleware import (
    SubAgent,
    create_middleware,
    create_sub_agent_middleware,
    human_in_the_loop,
    summarization_middleware,
)
from outlast.model import Completion, Delta, DeltaSink, ModelRequest
from outlast.tools import ToolResult

NAMES = (
    "input", "earlier", "instructions", "docstring", "toolargs", "toolresult", "progress", "large", "toolerror",
    "sourceline", "hookerror", "effectargs", "effectresult", "effecterror", "startstate", "hookstate",
    "preview", "decidedby", "comment", "editedargs", "rejected", "steering", "reasoning", "delta", "summary",
    "childtask", "childinstructions", "childanswer", "structured", "schema", "described", "output", "resumedby",
    "abort", "provider", "agenterror", "failedoutput",
)  # fmt: skip


def mark(name: str) -> str:
    """The marker, three times: a page of the database may end within one of them."""
    assert name in NAMES
    return " ".join([marker(name)] * 3)


def marker(name: str) -> str:
    return f"mark.{name}.q7z"


class Report(BaseModel):
    """What the main agent answers with."""

    text: str = Field(description=mark("schema"))


@tool(name="look", description=mark("docstring"))
async def look(what: str, ctx: ToolContext) -> str:
    """Long enough for a heartbeat."""
    ctx.heartbeat({"progress": mark("progress")})
    await asyncio.sleep(2.7)
    return mark("toolresult")


@tool
def fetch() -> str:
    """More than the history keeps."""
    return (mark("large") + " ") * 400


@tool
def crash() -> str:
    """Fail."""
    raise LookupError(mark("toolerror"))


@tool
def ask() -> str:
    """Ask a person."""
    raise HitlInterrupt("ask", {}, description=mark("described"))


@tool
def mail(to: str) -> str:
    """Send."""
    return f"sent to {to}"


@tool
def stop() -> str:
    """End the run."""
    raise AgentError("STOPPED", mark("agenterror"))


@side_effect
def lookup(what: str) -> dict[str, Any]:
    """Whether somebody has mended what makes the hook fail."""
    return {"found": mark("effectresult"), "mended": Path(os.environ["SECRETS_MENDED"]).exists()}


@side_effect
def broken() -> str:
    raise ValueError(mark("effecterror"))


async def after_tool(result: ToolResult, ctx: HookContext) -> None:
    """Parks the run, until it is mended and resumed."""
    if result.name != "crash":
        return
    found = await lookup(mark("effectargs"))
    try:
        await broken()
    except Exception:
        ctx.invocation_state["hook"] = mark("hookstate")
    if not found["mended"]:
        raise RuntimeError(mark("hookerror"))  # mark.sourceline.q7z mark.sourceline.q7z mark.sourceline.q7z


class Talker:
    """Its answers in the order of the run's steps."""

    name = "talker"

    def __init__(self, final: str, *turns: list[tuple[str, dict[str, Any]]] | Exception) -> None:
        self.turns = turns
        self.final = final

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        ids = [call.id for message in request.messages for call in message.tool_calls]
        asked = max((int(id.split("_")[1]) for id in ids), default=0)  # a summary hides the oldest
        turn = self.turns[asked] if asked < len(self.turns) else []
        if isinstance(turn, Exception):
            raise turn
        said = mark("delta") if turn else self.final
        if on_delta is not None:
            on_delta(Delta(text=said))
            await asyncio.sleep(0.15)
        blocks: list[Any] = [ReasoningBlock(text=mark("reasoning"), signature="s"), TextBlock(text=said)]
        blocks += [
            ToolCallBlock(id=f"c{asked}.{number}", name=name, raw_args=json.dumps(args))
            for number, (name, args) in enumerate(turn)
        ]
        return Completion(message=Message(role="assistant", blocks=tuple(blocks)))


class Summarizer:
    """Always the same notes."""

    name = "summarizer"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        return Completion(message=Message(role="assistant", blocks=(TextBlock(text=mark("summary")),)))


clerk = SubAgent(
    name="clerk",
    description="finds",
    instructions=mark("childinstructions"),
    model=Talker(mark("childanswer"), [("crash", {})]),
    tools=[crash],
)

main = Agent(
    AgentOptions(
        name="main",
        model=Talker(
            json.dumps({"text": mark("structured")}),
            [("look", {"what": mark("toolargs")}), ("fetch", {})],
            [("crash", {})],
            [("mail", {"to": mark("preview")})],
            [("mail", {"to": "nobody"})],
            [("ask", {})],
            [("task", {"description": mark("childtask"), "subagent_type": "clerk"})],
        ),
        instructions=mark("instructions"),
        tools=[look, fetch, crash, ask, mail],
        response_format=Report,
        middleware=[
            summarization_middleware(Summarizer(), trigger_tokens=4000, keep_messages=4),
            create_middleware("noting", after_tool=after_tool),
            create_sub_agent_middleware("scripted:none", [clerk]),
            human_in_the_loop({"mail": True}),
        ],
    )
)

brief = Agent(AgentOptions(name="brief", model=Talker(mark("output"))))
stopped = Agent(AgentOptions(name="stopped", model=Talker("", [("stop", {})]), tools=[stop]))
refused = Agent(AgentOptions(name="refused", model=Talker("", InvalidRequest(mark("provider")))))
failed = Agent(
    AgentOptions(name="failed", model=Talker("", InvalidRequest(mark("failedoutput"))), on_error="fail"),
)
