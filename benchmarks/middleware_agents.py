"""The agents of ``benchmarks/middleware.py``: one without middleware, one with ten. A worker serves both."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from temporalio.worker import Worker

from outlast import Agent, AgentOptions, AgentPlugin, tool
from outlast.messages import ToolCallBlock, assistant
from outlast.middleware import (
    ClearToolUsesEdit,
    context_editing_middleware,
    human_in_the_loop,
    model_fallback,
    model_retry,
    pii_redact,
    policy_filter,
    summarization_middleware,
    todo_list,
    tool_call_limit,
    tool_retry,
)
from outlast.model import Completion, DeltaSink, ModelRequest
from outlast.settings import Settings, connect

CALL = '{"page": %d, "size": %d}'
PROSE = "Page {page}: the committee met at noon, heard 12 reports of 3 pages each, and put off what was not urgent. "


class Counting:
    """Asks for the next page until there are as many as the first message says. It does not read the conversation."""

    name = "benchmark:counting"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        opening = next(message for message in request.messages if message.role == "user")
        steps, size = map(int, opening.text.split())
        done = sum(message.role == "tool" for message in request.messages)
        if done >= steps:
            return Completion(message=assistant("done"))
        block = ToolCallBlock(id="call", name="fetch", raw_args=CALL % (done, size))
        return Completion(message=assistant([block]), finish="tool_use")


@tool
async def fetch(page: int, size: int) -> str:
    """Fetch a page.

    Args:
        page: Its number.
        size: How many characters.
    """
    line = PROSE.format(page=page)
    return (line * (size // len(line) + 1))[:size]


@tool
async def publish(title: str) -> str:
    """Publish a page, once somebody has approved it.

    Args:
        title: Its title.
    """
    return title


model = Counting()
TEN = (
    pii_redact("email"),
    policy_filter(deny=["drop_database"]),
    tool_call_limit(run_limit=1_000_000),
    human_in_the_loop({"publish": True}),
    tool_retry(),
    model_fallback("openai:gpt-5"),
    model_retry(),
    summarization_middleware(model, 10_000_000),
    context_editing_middleware([ClearToolUsesEdit(10_000_000)]),
    todo_list(),
)
"""In the recommended order; of the eleven that concern every step, ``model_call_limit`` (one comparison) is left out.

No trigger is reached, no tool is asked about, nothing fails: measured is what hooks cost that have nothing to do.
"""


def agent(name: str, middleware: Sequence[object]) -> Agent:
    return Agent(
        AgentOptions(
            name=name,
            model=model,
            instructions="You fetch pages.",
            tools=[fetch, publish],
            middleware=middleware,
            max_steps=1_000_000,
        )
    )


plain, guarded = agent("plain", ()), agent("guarded", TEN)


async def main(address: str, task_queue: str, storage: str) -> None:
    client = await connect(Settings.load(address=address, storage=storage, environ={}))
    async with Worker(client, task_queue=task_queue, plugins=[AgentPlugin([plain, guarded])]):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    from benchmarks import middleware_agents  # under its own name, as a worker would import it

    asyncio.run(middleware_agents.main(*sys.argv[1:]))
