"""Serves or replays one peer: ``python -m benchmarks.peers.serving MODULE serve ADDRESS TASK_QUEUE [STORAGE]``.

Or ``... MODULE replay STORAGE HISTORY...`` with files of serialized histories (``-`` for no storage); prints seconds.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from temporalio.api.history.v1 import History
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, Worker

from benchmarks.peers.script import Served

REPLAYS = 3


def end_with_the_parent() -> None:
    """Our standard input is a pipe that closes when the benchmark ends, however it ends."""
    sys.stdin.buffer.read()
    os._exit(0)


async def serve(served: Served, address: str, task_queue: str, storage: str | None) -> None:
    """Work until killed."""
    threading.Thread(target=end_with_the_parent, daemon=True).start()
    if served.connect is not None:
        client, plugins = await served.connect(address, storage), served.plugins
    else:
        client, plugins = await Client.connect(address, plugins=list(served.plugins)), ()
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=list(served.workflows),
        activities=list(served.activities),
        plugins=list(plugins),
    ):
        print("ready", flush=True)
        await asyncio.Event().wait()


async def replay(served: Served, storage: str | None, files: list[str]) -> list[float]:
    """Seconds that all these histories take together, a few times over; the first time is for warming up."""
    histories = [_read(Path(file)) for file in files]
    seconds = []
    for _ in range(REPLAYS + 1):
        replayer = Replayer(workflows=list(served.workflows), plugins=list(served.plugins), **served.replaying(storage))
        began = time.perf_counter()
        for history in histories:
            await replayer.replay_workflow(history)
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def _read(file: Path) -> WorkflowHistory:
    events = History.FromString(file.read_bytes()).events
    return WorkflowHistory(events[0].workflow_execution_started_event_attributes.workflow_id, events)


def main(module: str, action: str, *arguments: str) -> None:
    """The command line."""
    served: Served = importlib.import_module(f"benchmarks.peers.{module}").worker()
    if action == "serve":
        address, task_queue, *storage = arguments
        asyncio.run(serve(served, address, task_queue, storage[0] if storage else None))
    else:
        first, *files = arguments
        seconds = asyncio.run(replay(served, None if first == "-" else first, files))
        print(f"\n{json.dumps(seconds)}", flush=True)  # on a line of its own: some peers print as well
        os._exit(0)  # an interpreter that ends this soon may crash in Temporal's core, which is still closing down


if __name__ == "__main__":
    main(*sys.argv[1:])
