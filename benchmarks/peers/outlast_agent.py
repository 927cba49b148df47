"""This package: an agent with a model object and two tools, as in its README."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from temporalio.client import Client

from benchmarks.peers.script import INSTRUCTIONS, Served, next_call
from outlast import Agent, AgentOptions, AgentPlugin, tool
from outlast.messages import ToolCallBlock, assistant
from outlast.middleware import human_in_the_loop
from outlast.model import Completion, DeltaSink, ModelRequest
from outlast.settings import Settings, connect, data_converter


class Scripted:
    name = "benchmark:scripted"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        results = sum(message.role == "tool" for message in request.messages)
        call = next_call(request.messages[1].text, results)
        if call is None:
            return Completion(message=assistant("done"))
        name, arguments = call
        block = ToolCallBlock(id=f"call-{results}", name=name, raw_args=json.dumps(arguments))
        return Completion(message=assistant([block]), finish="tool_use")


@tool
async def fetch(page: int, size: int, of: int) -> str:
    """Fetch a page.

    Args:
        page: Its number.
        size: How many characters.
        of: How many pages there are.
    """
    return "x" * size


@tool
async def publish(title: str) -> str:
    """Publish a report.

    Args:
        title: Its title.
    """
    return "published"


bench = Agent(
    AgentOptions(
        name="bench",
        model=Scripted(),
        instructions=INSTRUCTIONS,
        tools=[fetch, publish],
        middleware=[human_in_the_loop({"publish": True})],
        max_steps=100_000,
    )
)


def settings(storage: str | None, address: str = "unused:1") -> Settings:
    return Settings.load(address=address, storage=storage, environ={})


async def connected(address: str, storage: str | None) -> Client:
    return await connect(settings(storage, address))


def replaying(storage: str | None) -> Mapping[str, Any]:
    return {"data_converter": data_converter(settings(storage))}


def worker() -> Served:
    return Served(plugins=[AgentPlugin([bench])], connect=connected, replaying=replaying)
