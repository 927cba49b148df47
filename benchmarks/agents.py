"""An agent whose model and tool do nothing, so that only the engine is measured. Run as a worker."""

from __future__ import annotations

import asyncio
import sys

from temporalio.worker import Worker

from outlast import Agent, AgentOptions, AgentPlugin, tool
from outlast.messages import ToolCallBlock, assistant
from outlast.model import Completion, DeltaSink, ModelRequest
from outlast.settings import Settings, connect

CALL = '{"page": %d, "size": %d}'


class Counting:
    """Asks for the tool until the conversation has as many results as its first message says."""

    name = "benchmark:counting"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        steps, size = map(int, request.messages[1].text.split())
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
    return "x" * size


bench = Agent(
    AgentOptions(name="bench", model=Counting(), instructions="You fetch pages.", tools=[fetch], max_steps=100_000)
)


async def main(address: str, task_queue: str, storage: str | None) -> None:
    client = await connect(Settings.load(address=address, storage=storage, environ={}))
    async with Worker(client, task_queue=task_queue, plugins=[AgentPlugin([bench])]):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    from benchmarks import agents  # under its own name, as a worker would import it

    asyncio.run(agents.main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
