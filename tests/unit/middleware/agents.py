"""Small agents and what tests read from their runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outlast import Agent, AgentOptions
from outlast.messages import Message
from outlast.model import Model
from outlast.state import RunResult
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import Reply, ScriptedModel


def agent(model: Model | Iterable[Reply], *middleware: object, tools: Iterable[Any] = (), **options: Any) -> Agent:
    scripted = model if isinstance(model, Model) else ScriptedModel(model)
    return Agent(AgentOptions(name="a", model=scripted, middleware=middleware, tools=tuple(tools), **options))


async def run(
    model: Model | Iterable[Reply], *middleware: object, tools: Iterable[Any] = (), **options: Any
) -> RunResult:
    return await MemoryRuntime(agent(model, *middleware, tools=tools, **options), "go").result()


def statuses(messages: Iterable[Message]) -> list[str]:
    return [result.status for message in messages for result in message.tool_results]


def texts(messages: Iterable[Message]) -> list[str]:
    return [result.text for message in messages for result in message.tool_results]
