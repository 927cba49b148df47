"""Agents whose hooks do what would not replay."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from time import time as now

from outlast import Agent, AgentOptions, HookContext, create_middleware
from outlast.model import ModelRequest
from outlast.testing.scripted import ScriptedModel

NAUGHTY: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time(),
    "from time import time": lambda: now(),
    "random.random": lambda: random.random(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "os.environ": lambda: os.environ.get("HOME"),
    "Path.read_text": lambda: Path("/etc/hostname").read_text(),
}


def _agent(number: int, what: str) -> Agent:
    def naughty(request: ModelRequest, ctx: HookContext) -> None:
        NAUGHTY[what]()

    middleware = create_middleware(f"naughty{number}", before_model=naughty)
    return Agent(AgentOptions(name=f"agent{number}", model=ScriptedModel(["hi"]), middleware=[middleware]))


a0, a1, a2, a3, a4, a5 = (_agent(number, what) for number, what in enumerate(NAUGHTY))
