"""What really happened, outside Temporal: tools append a line before and after their effect, tests read them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "CHAOS_LEDGER"


@dataclass(frozen=True)
class Line:
    """``kind``: ``begin`` before the effect, ``end`` after it."""

    kind: str
    tool: str
    run_id: str
    call_id: str
    key: str
    attempt: int
    pid: int
    at: float


def write(kind: str, tool: str, run_id: str, call_id: str, key: str, attempt: int) -> None:
    """One line, in one system call, so that no kill leaves half of it."""
    line = Line(kind, tool, run_id, call_id, key, attempt, os.getpid(), time.time())
    handle = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, json.dumps(asdict(line)).encode() + b"\n")
    finally:
        os.close(handle)


def read(path: Path) -> list[Line]:
    """All lines so far."""
    return [Line(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
