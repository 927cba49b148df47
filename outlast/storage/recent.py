"""The newest objects of a store, kept in memory: a run mostly reads what its worker has just written."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 8_000_000
MAX_OBJECT: Final = 1_100_000


class RecentObjects:
    """Objects by the path of their file, up to :data:`MAX_BYTES` in all; the oldest go first. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, bytes] = {}
        self._size = 0

    def __contains__(self, path: str) -> bool:
        return path in self._objects

    def get(self, path: str) -> bytes | None:
        """The object, while its file is there and whole; so that a store that lost it does not hide the loss."""
        data = self._objects.get(path)
        if data is None:
            return None
        try:
            return data if Path(path).stat().st_size == len(data) else None
        except OSError:
            return None

    def keep(self, path: str, data: bytes) -> None:
        """Remember an object that is in its file."""
        if len(data) > MAX_OBJECT:
            return
        with self._lock:
            self._size += len(data) - len(self._objects.pop(path, b""))
            self._objects[path] = data
            while self._size > MAX_BYTES:
                oldest = next(iter(self._objects))
                self._size -= len(self._objects.pop(oldest))
