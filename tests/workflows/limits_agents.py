"""Agents and tools that give as much as they are asked for, and what tests of limits do with their runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.worker import Worker

from outlast import Agent, AgentOptions, HitlInterrupt, HookContext, ToolContext, create_middleware, tool
from outlast.client import Client
from outlast.middleware import human_in_the_loop
from outlast.model import Completion, ModelRequest
from outlast.plugin import AgentPlugin
from outlast.run import Run
from outlast.settings import Settings, connect
from outlast.testing import LocalEnv, call, text

LARGE = 3_000_000
done: Counter[str] = Counter()
"""How often each body was run; a test clears it."""


class Always:
    """A model that decides by how many turns it has had, so that a repeated call gets the same answer."""

    name = "always"

    def __init__(self, *answers: Completion) -> None:
        self._answers = answers

    async def complete(self, request: ModelRequest, on_delta: Any = None) -> Completion:
        done["model"] += 1
        turns = sum(message.role == "assistant" for message in request.messages)
        return self._answers[turns] if turns < len(self._answers) else text("done")


@tool
async def measure(title: str) -> str:
    """Measure."""
    return str(len(title))


@tool
async def large(size: int) -> str:
    """Give so much."""
    done["large"] += 1
    return "x" * size


@tool(local=True)
async def near(size: int) -> str:
    """Give so much, from nearby."""
    return "x" * size


@tool
async def beats(context: ToolContext) -> str:
    """Report far too much."""
    done["beats"] += 1
    context.heartbeat("x" * LARGE)
    return "beaten"


@tool(idempotent=False)
async def asks(context: ToolContext) -> str:
    """Ask a person about far too much."""
    done["asks"] += 1
    if context.decision is None:
        raise HitlInterrupt("asks", {}, description="x" * LARGE)
    return "asked"


def made(*answers: Completion, tools: Any = (), middleware: Any = ()) -> Agent:
    return Agent(AgentOptions(name="a", model=Always(*answers), tools=tools, middleware=middleware))


def gated() -> Agent:
    return made(call("measure", title="x"), tools=[measure], middleware=[human_in_the_loop({"measure": True})])


async def waiting(run: Run) -> Run:
    async with asyncio.timeout(20):
        while (await run.info()).status != "suspended":
            await asyncio.sleep(0.02)
    return run


async def assert_unharmed(env: LocalEnv, run: Run) -> None:
    """The run decides and ends, and no workflow task of it ever failed."""
    await run.decide("measure", "approve")
    assert (await run.result()).output == "done"
    history = await env.temporal.get_workflow_handle(run.id).fetch_history()
    assert EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED not in [event.event_type for event in history.events]


def before(effect: Callable[[], Awaitable[object]]) -> object:
    """A middleware that calls a side effect before each step."""

    async def hook(request: ModelRequest, ctx: HookContext) -> None:
        await effect()

    return create_middleware("effect", before_model=hook)


async def results(run: Run) -> list[str]:
    """The texts of all results, once the run has ended."""
    result = await asyncio.wait_for(run.result(), 30)
    return [found.text for message in result.messages for found in message.tool_results]


@asynccontextmanager
async def given_storage(env: LocalEnv, path: Path) -> AsyncIterator[Client]:
    """The environment's agents on a worker that has storage, instead of the one that had none."""
    await env.stop_worker()
    temporal = await connect(Settings.load(address=env.address, storage=f"dir://{path}", environ={}))
    env.storage = f"dir://{path}"
    async with Worker(temporal, task_queue=env.task_queue, plugins=[AgentPlugin(env.agents)]):
        yield Client(temporal, task_queue=env.task_queue)
