"""The agent of ``benchmarks/long_run.py``: it is left alone, and what its model sees is kept short by summaries."""

from __future__ import annotations

import asyncio
import sys

from temporalio.worker import Worker

from outlast import Agent, AgentOptions, AgentPlugin, tool
from outlast.messages import ToolCallBlock, assistant
from outlast.middleware import summarization_middleware
from outlast.model import Completion, DeltaSink, ModelRequest
from outlast.settings import Settings, connect

CALL = '{"page": %d, "size": %d, "of": %d}'


class Onwards:
    """Asks for the page after the one that its last call named; a summary is a few words."""

    name = "benchmark:onwards"

    async def complete(self, request: ModelRequest, on_delta: DeltaSink | None = None) -> Completion:
        if not request.tools:
            return Completion(message=assistant("pages were fetched"))
        page, size, last = self._place(request)
        if page >= last:
            return Completion(message=assistant("done"))
        block = ToolCallBlock(id=f"call-{page}", name="fetch", raw_args=CALL % (page, size, last))
        return Completion(message=assistant([block]), finish="tool_use")

    @staticmethod
    def _place(request: ModelRequest) -> tuple[int, int, int]:
        for message in reversed(request.messages):
            for call in message.tool_calls:
                args, _ = call.parse_args()
                assert args is not None
                return args["page"] + 1, args["size"], args["of"]
        last, size = map(int, request.messages[-1].text.split())
        return 0, size, last


@tool
async def fetch(page: int, size: int, of: int) -> str:
    """Fetch a page.

    Args:
        page: Its number.
        size: How many characters.
        of: How many pages there are.
    """
    return f"{page} of {of} " + "x" * size


model = Onwards()
long = Agent(
    AgentOptions(
        name="long",
        model=model,
        instructions="You fetch pages.",
        tools=[fetch],
        middleware=[summarization_middleware(model=model, trigger_tokens=20_000, keep_messages=10)],
        max_steps=1_000_000,
    )
)


async def main(address: str, task_queue: str, storage: str) -> None:
    client = await connect(Settings.load(address=address, storage=storage, environ={}))
    async with Worker(client, task_queue=task_queue, plugins=[AgentPlugin([long])]):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    from benchmarks import long_agents  # under its own name, as a worker would import it

    asyncio.run(long_agents.main(*sys.argv[1:]))
