"""The yardstick: a workflow with the same activities, written by hand. It keeps no conversation, only the page number.

Source: https://docs.temporal.io/develop/python (activities, and waiting for a signal with ``wait_condition``).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

from benchmarks.peers.script import Served, next_call

LIMIT = timedelta(seconds=60)


@activity.defn
async def model(prompt: str, results: int) -> tuple[str, dict[str, Any]] | None:
    return next_call(prompt, results)


@activity.defn
async def fetch(page: int, size: int, of: int) -> str:
    return "x" * size


@activity.defn
async def publish(title: str) -> str:
    return "published"


@workflow.defn
class Bench:
    def __init__(self) -> None:
        self.approved = False
        self.kept = ""

    @workflow.signal
    def approve(self) -> None:
        self.approved = True

    @workflow.run
    async def run(self, prompt: str) -> str:
        results = 0
        while call := await workflow.execute_activity(model, args=[prompt, results], start_to_close_timeout=LIMIT):
            name, arguments = call
            if name == "fetch":
                self.kept = await workflow.execute_activity(
                    fetch, args=[arguments["page"], arguments["size"], arguments["of"]], start_to_close_timeout=LIMIT
                )
            else:
                await workflow.wait_condition(lambda: self.approved)
                self.approved = False
                await workflow.execute_activity(publish, arguments["title"], start_to_close_timeout=LIMIT)
            results += 1
        return "done"


def worker() -> Served:
    return Served(workflows=[Bench], activities=[model, fetch, publish])
