"""Run an agent in-process, without a server: for unit tests of hooks, tools and loops."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from outlast.activities.tools import run_tool
from outlast.agent import Agent
from outlast.approvals import PendingInterrupt, parse_decision
from outlast.approvals import DecisionMessage
from outlast.effects import find_effect
from outlast.errors import AgentRunFailed, AgentRunPaused, DecisionRefused
from outlast.events import Event, PauseInfo
from outlast.execution import Execution
from outlast.loop import drive
from outlast.messages import Json, Message, repair_sequence, user
from outlast.model import Completion, Model
from outlast.models import resolve_model
from outlast.runtime import EffectCall, ModelCall, ToolExecution
from outlast.state import RunInput, RunResult, new_state
from outlast.tools import ToolResult


class MemoryRuntime:
    """A runtime in memory, with a clock of its own that jumps over every wait.

    ``await MemoryRuntime(agent).start("hi")`` runs until the run finishes, waits for a decision, or parks.
    Implements :class:`outlast.runtime.Runtime`.

    Attributes:
        run_id: As given.
        state: The run's :class:`~outlast.state.RunState`; to look at, not to change.
    """
