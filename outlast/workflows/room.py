"""How much of what a run asks for goes through the server at once. What is too large is refused before it is sent.

A value over the server's limits fails the workflow task for ever, and one request over 4 MB terminates the run. So
every size is looked at here first, and what one task asks for is spread over several tasks where that helps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from temporalio import workflow
from temporalio.common import RawValue

from outlast.errors import HookFailure
from outlast.limits import MAX_INLINE_BYTES

LOCAL_RESULT_BYTES = 100_000
"""A local tool's result without storage: all those of one task go to the server in one request."""

STORED_BYTES = 262_144
"""From here on external storage takes a payload for certain: it is the highest of the thresholds in use."""


class Room:
    """The sizes of one execution.

    Args:
        has_storage: Whether this worker has external storage. What is decided by it is recorded in the history, so
            that a run which parked for the lack of storage goes on, by the same code, on a worker that has it.
    """

    def __init__(self, has_storage: bool) -> None:
        self._has_storage = has_storage
        self._stored = False
        self._questions = 0
        self._door = asyncio.Lock()
        self._task, self._asked = 0, 0

    def is_stored(self) -> bool:
        """Whether storage takes what is too large; asked only where something is."""
        if self._stored:
            return True
        self._questions += 1
        if self._has_storage or workflow.unsafe.is_replaying():
            self._stored = workflow.patched(f"outlast-storage-{self._questions}")
        return self._stored

    def check(self, payloads: Sequence[RawValue], what: str, limit: int = MAX_INLINE_BYTES) -> int:
        """Bytes of the payloads, as far as storage does not take them.

        Raises:
            HookFailure: They are more than the server carries, and there is no storage.
        """
        size = sum(len(payload.payload.data) for payload in payloads)
        if size <= limit and not self._stored:
            return size
        if size > limit and not self.is_stored():
            raise HookFailure(
                "storage",
                f"{what}: {size:,} bytes, and {limit:,} are what Temporal carries here; "
                "configure storage (OUTLAST_STORAGE=dir:///path) on the workers and clients, then resume",
            )
        return sum(min(len(payload.payload.data), STORED_BYTES) for payload in payloads)

    async def admit(self, size: int, pause: Callable[[], Awaitable[None]]) -> int:
        """Wait for a workflow task with room for so many bytes more; ``pause`` begins another one.

        Returns the task, for :meth:`give_back`.
        """
        async with self._door:
            while not self._has_room(size):
                if size > STORED_BYTES and self.is_stored():
                    size = STORED_BYTES
                else:
                    await pause()
            self._asked += size
            return self._task

    def give_back(self, task: int, size: int) -> None:
        """So many bytes were not needed after all."""
        if task == self._task:
            self._asked -= size

    def _has_room(self, size: int) -> bool:
        task = workflow.info().get_current_history_length()
        if task != self._task:
            self._task, self._asked = task, 0
        return self._asked == 0 or self._asked + size <= MAX_INLINE_BYTES
