"""The loop's only door to the world: what a runtime must be able to do, and the values it is handed.

``TemporalRuntime`` does it with activities, timers and signals; ``MemoryRuntime`` does it in-process.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from outlast.events import PauseInfo
from outlast.messages import Json
from outlast.model import Completion, ModelRequest
from outlast.state import RunInput
from outlast.tools import ToolCall, ToolResult


@dataclass(frozen=True)
class ModelCall:
    """One model call.

    Attributes:
        command_id: Semantic, unique in its execution: ``s0007.model``, ``s0007.model.2`` for a retry.
        model: A reference the worker resolves: a model string, or a slot of the agent's model table.
        stream: Whether deltas may be shown before the call has succeeded.
    """

    command_id: str
    model: str
    request: ModelRequest
    stream: bool = False


@dataclass(frozen=True)
class ToolExecution:
    """One execution of a tool's body.

    Attributes:
        command_id: ``s0007.tool.1``, with ``.2`` and so on for later attempts by middleware.
        idempotency_key: The same for every attempt of the call.
        attempt: 1-based, over all attempts.
        decision: ``approve`` or ``edit`` where a person let the call through.
    """

    command_id: str
    idempotency_key: str
    call: ToolCall
    attempt: int = 1
    decision: str | None = None


@dataclass(frozen=True)
class EffectCall:
    """One call of a ``@side_effect`` function: ``module:qualname`` and JSON arguments."""

    command_id: str
    function: str
    args: tuple[Json, ...]
    kwargs: dict[str, Json]
    timeout_seconds: float = 60.0
    max_attempts: int = 3


class Runtime(Protocol):
    """What the loop and the hooks may ask of the world. All of it is replayed deterministically."""

    @property
    def run_id(self) -> str:
        """The run's id: the workflow id."""
        ...

    @property
    def random(self) -> random.Random:
        """Randomness that replays."""
        ...

    @property
    def control_errors(self) -> tuple[type[BaseException], ...]:
        """What a guard must let through: cancellation, and the engine's own signals."""
        ...

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked to cancel the run."""
        ...

    def now(self) -> datetime:
        """The current time, UTC, as workflow code may know it."""
        ...

    def uuid(self) -> UUID:
        """A fresh id that replays."""
        ...

    async def sleep(self, seconds: float, command_id: str) -> None:
        """A durable timer."""
        ...

    async def call_model(self, call: ModelCall) -> Completion:
        """Raises ModelError."""
        ...

    async def call_tool(self, execution: ToolExecution) -> ToolResult:
        """Raises ToolError, ToolRejection or HitlInterrupt."""
        ...

    async def run_effect(self, call: EffectCall) -> Json:
        """Run a side effect; raises what it raised, as ToolError if its class is unknown here."""
        ...

    async def wait_until(self, condition: Callable[[], bool], timeout_seconds: float | None, command_id: str) -> bool:
        """Wait until the condition holds (True) or the time is up (False). May continue as new while waiting."""
        ...

    async def between_steps(self) -> None:
        """Called where the state is complete; may continue as new."""
        ...

    async def park(self, pause: PauseInfo) -> None:
        """Park the run until somebody resumes it; returns after the resume, or never (continue-as-new)."""
        ...

    async def start_child(self, child_id: str, start: RunInput) -> None:
        """Start a sub-agent's run, detached: it reports by signal. An id that runs already is left alone."""
        ...

    async def signal_run(self, run_id: str, name: str, value: Json) -> bool:
        """Signal another run; False if there is no open run of that id."""
        ...

    async def cancel_run(self, run_id: str) -> None:
        """Ask another run to stop; nothing happens if it is over."""
        ...

    def changed(self) -> None:
        """The run's status changed: publish it to whoever lists runs."""
        ...


current_runtime: ContextVar[Runtime | None] = ContextVar("outlast_runtime", default=None)
"""The runtime of the run this code belongs to; None outside a run."""


class CommandIds:
    """Semantic command ids of one step: ``s0007.before_tool.audit``, and ``.2``, ``.3`` for repeats.

    Replay compares ids, so that swapped calls are detected instead of silently exchanging results.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, step: int, scope: str) -> str:
        """The next id in this scope of this step; at most 200 ASCII characters."""
        base = f"s{step:04d}.{ascii(scope)[1:-1][:160]}"
        count = self._counts[base] = self._counts.get(base, 0) + 1
        return base if count == 1 else f"{base}.{count}"

    def start_step(self) -> None:
        """Forget the last step's counts."""
        self._counts.clear()


current_scope: ContextVar[str] = ContextVar("outlast_scope", default="run")
"""Which hook of which middleware is running, for command ids and for error reports."""


class scoped:  # noqa: N801 - read as a statement
    """Run a block under this :data:`current_scope`.

    No generator: ``contextlib`` assigns to an exception on its way out, which a frozen one refuses.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._token = current_scope.set(self._name)

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(ValueError):  # collected with its stopped worker, in nobody's context
            current_scope.reset(self._token)


current_effects: ContextVar[Callable[[str], str]] = ContextVar("outlast_effects", default=lambda name: name)
"""Gives the command id for a side effect of this name, called at this place."""
