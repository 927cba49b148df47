"""Records histories of the code as it is: ``python -m tests.replay.record v0_1``, when a version is released.

Before the release they may be deleted and recorded anew; after it never: open runs of that version would go untested.
What would name this machine is taken out of what is kept.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from google.protobuf.message import Message as Proto
from temporalio.client import WorkflowHistory

from outlast.errors import AgentRunPaused
from outlast.run import Run
from outlast.testing import LocalEnv, local_env

HERE = Path(__file__).parent
PLACES = (str(HERE.parent.parent), sys.base_prefix)
_WHO = re.compile(r"\d+@[\w.-]+")


async def decided(env: LocalEnv, run: Run) -> None:
    """Every kind of decision."""
    await until_pending(run, 2)
    [first, second] = await run.pending()
    await run.decide(first.tool_call_id, {"edit": {"title": "edited"}}, by="alice")
    await run.decide(second.tool_call_id, {"reject": "not this one"}, by="bob", comment="twice the same")
    await until_pending(run, 1)
    await run.decide("publish", "approve", by="alice")
    await run.result()


async def resumed(env: LocalEnv, run: Run) -> None:
    """Paused by an error of the model, then resumed."""
    try:
        await run.result()
    except AgentRunPaused:
        await run.resume(by="alice")
    await run.result()


async def one_approval(env: LocalEnv, run: Run) -> None:
    """A message while it waits, a worker that restarts, and an approval."""
    await until_pending(run, 1)
    await run.send("and thank them")
    await env.stop_worker()
    await env.start_worker()
    await run.decide("publish", "approve", by="alice")
    await run.result()


async def untouched(env: LocalEnv, run: Run) -> None:
    """Nobody does anything."""
    await run.result()


SCENARIOS: dict[str, Callable[[LocalEnv, Run], Awaitable[None]]] = {
    "approvals": decided,
    "paused": resumed,
    "parent": one_approval,
    "steered": one_approval,
}


async def until_pending(run: Run, count: int) -> None:
    while len(await run.pending()) != count:
        await asyncio.sleep(0.02)


async def record(version: str) -> None:
    """Run every agent of the version and keep what it left."""
    folder = HERE / "histories" / version
    folder.mkdir(parents=True, exist_ok=True)
    agents = importlib.import_module(f"tests.replay.agents_{version}").AGENTS
    async with local_env(agents, continue_as_new_events=40) as env:
        for agent in agents:
            run = await env.client.start(agent.name, f"Go, {agent.name}.", id=f"kept-{version}-{agent.name}")
            await SCENARIOS.get(agent.name, untouched)(env, run)
        for number, history in enumerate(await env.histories()):
            keep(history, folder, number)


def keep(history: WorkflowHistory, folder: Path, number: int) -> None:
    """One execution as a file."""
    for event in history.events:
        scrub(event)
    name = re.sub(r"\W+", "-", history.workflow_id.removeprefix(f"kept-{folder.name}-"))
    file = folder / f"{number:02}-{name}.json"
    if file.exists():
        raise SystemExit(f"{file} is there: what was kept is never recorded again")
    file.write_text(json.dumps(json.loads(history.to_json()), separators=(",", ":")) + "\n")


def scrub(message: Proto) -> None:
    """Take paths and host names out of every text and every payload."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            parts = value.values() if isinstance(value, Mapping) else value if field.is_repeated else [value]
            for part in parts:
                if isinstance(part, Proto):
                    scrub(part)
        elif field.is_repeated:
            continue
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, _WHO.sub("1@worker", _without_places(value)))
        elif field.type == field.TYPE_BYTES and any(place.encode() in value for place in PLACES):
            setattr(message, field.name, _without_places(value.decode()).encode())


def _without_places(text: str) -> str:
    for place in PLACES:
        text = text.replace(place, "")
    return text


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
