"""What really happened, outside Temporal: tools append a line before and after their effect."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

VARIABLE = "OUTLAST_CHAOS_LEDGER"


@dataclass(frozen=True)
class Line:
    """One line.

    Attributes:
        at: ``begin`` before the effect, ``end`` after it.
        key: The call's idempotency key.
        time: Seconds since the epoch.
    """

    at: Literal["begin", "end"]
    run: str
    tool: str
    what: str
    key: str
    pid: int
    time: float


def write(at: Literal["begin", "end"], run: str, tool: str, what: str, key: str) -> None:
    """One line in one append that has reached the disk, so that no kill leaves half of it."""
    line = Line(at, run, tool, what, key, os.getpid(), time.time())
    handle = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, json.dumps(asdict(line)).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> list[Line]:
    """All lines so far."""
    return Reader(path).read()


class Reader:
    """Reads a ledger while it grows, every line once."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self._path = path
        self._offset = 0

    def read(self) -> list[Line]:
        """What has been added since the last call; ``count`` is how much has been read in all."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = [Line(**json.loads(line)) for line in whole.splitlines()]
        self.count += len(found)
        return found
