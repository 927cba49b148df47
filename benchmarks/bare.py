"""The yardstick: a workflow with the same two activities that do nothing, written by hand. Run as a worker."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

LIMIT = timedelta(seconds=60)


@activity.defn
async def bare_model(step: int) -> dict[str, int]:
    return {"page": step}


@activity.defn
async def bare_tool(page: int, size: int) -> str:
    return "x" * size


@workflow.defn
class Bare:
    @workflow.run
    async def run(self, steps: int, size: int) -> str:
        for step in range(steps):
            call = await workflow.execute_activity(bare_model, step, start_to_close_timeout=LIMIT)
            await workflow.execute_activity(bare_tool, args=[call["page"], size], start_to_close_timeout=LIMIT)
        await workflow.execute_activity(bare_model, steps, start_to_close_timeout=LIMIT)
        return "done"


async def main(address: str, task_queue: str) -> None:
    client = await Client.connect(address)
    worker = Worker(client, task_queue=task_queue, workflows=[Bare], activities=[bare_model, bare_tool])
    async with worker:
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
