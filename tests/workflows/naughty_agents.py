"""Agents whose hooks do what would not replay; while their module is imported, doing so is free."""

from __future__ import annotations

import os
import random
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from time import time as now
from typing import Any

from outlast import Agent, AgentOptions, HookContext, create_middleware, tool
from outlast.testing.scripted import ScriptedModel, call

AT_IMPORT = {
    "environment": os.environ.get("HOME", ""),
    "variable": os.getenv("HOME", ""),
    "own file": Path(__file__).read_text(encoding="utf-8")[:3],
    "clock": time.time(),
    "date": datetime.now().isoformat(),
    "luck": random.random(),
    "id": str(uuid.uuid4()),
}

NAUGHTY: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time(),
    "from time import time": lambda: now(),
    "time.sleep": lambda: time.sleep(0.001),
    "datetime.now": lambda: datetime.now(),
    "date.today": lambda: date.today(),
    "random.random": lambda: random.random(),
    "random.choice": lambda: random.choice([1, 2]),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "secrets.token_hex": lambda: secrets.token_hex(),
    "os.urandom": lambda: os.urandom(3),
    "os.environ": lambda: os.environ.get("HOME"),
    "os.getenv": lambda: os.getenv("HOME"),
    "open": lambda: open("/etc/hostname"),  # noqa: PTH123, SIM115 - that is the point
    "Path.read_text": lambda: Path("/etc/hostname").read_text(),
}
POINTS = ["before_model", "wrap_model", "after_model", "before_tool", "around_tool", "after_tool"]


@tool
def act(x: str) -> str:
    """A tool may do all of it: it runs outside the workflow."""
    return f"{os.environ.get('HOME', '')[:0]}did {x} at {time.time() > 0}"


def _agent(name: str, point: str, what: str) -> Agent:
    def beside(value: Any, ctx: HookContext) -> None:
        NAUGHTY[what]()

    async def around(value: Any, call_next: Any, ctx: HookContext) -> Any:
        NAUGHTY[what]()
        return await call_next(value)

    hook: Any = around if point in ("wrap_model", "around_tool") else beside
    middleware = create_middleware("naughty", **{point: hook})
    return Agent(
        AgentOptions(name=name, model=ScriptedModel([call("act", x="a"), "done"]), tools=[act], middleware=[middleware])
    )


def _harmless(call: Any, ctx: HookContext) -> None:
    ctx.invocation_state["imported"] = sorted(AT_IMPORT)
    ctx.invocation_state["given"] = [ctx.now().year > 2000, 0 <= ctx.random.random() < 1, len(str(ctx.uuid()))]


_named = {f"by {what}": _agent(f"by {what}", "before_tool", what) for what in NAUGHTY}
_placed = {f"at {point}": _agent(f"at {point}", point, "time.time") for point in POINTS}
AGENTS = {**_named, **_placed}
globals().update({f"agent_{number}": agent for number, agent in enumerate(AGENTS.values())})  # found by these names

good = Agent(
    AgentOptions(
        name="good",
        instructions=f"{AT_IMPORT['own file']}",
        model=ScriptedModel([call("act", x="a"), "done"] * 5),
        tools=[act],
        middleware=[create_middleware("harmless", before_tool=_harmless)],
    )
)
