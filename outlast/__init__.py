"""outlast: durable agents. An agent run is a Temporal workflow; it outlasts its worker."""

from typing import TYPE_CHECKING

from outlast.agent import Agent, AgentOptions
from outlast.effects import side_effect
from outlast.errors import (
    AgentError,
    AgentRunFailed,
    AgentRunPaused,
    HitlInterrupt,
    ToolRejection,
    get_retryable,
    hitl_key,
    stamp_retryable,
)
from outlast.lazy_package import make_lazy
from outlast.middleware.contract import HookContext, Middleware, create_middleware
from outlast.state import RunResult
from outlast.tools import ToolContext, tool

if TYPE_CHECKING:
    from outlast.client import Client
    from outlast.plugin import AgentPlugin

__all__ = [
    "Agent",
    "AgentError",
    "AgentOptions",
    "AgentPlugin",
    "AgentRunFailed",
    "AgentRunPaused",
    "Client",
    "HitlInterrupt",
    "HookContext",
    "Middleware",
    "RunResult",
    "ToolContext",
    "ToolRejection",
    "create_middleware",
    "get_retryable",
    "hitl_key",
    "side_effect",
    "stamp_retryable",
    "tool",
]

# These two load Temporal's SDK, so they are imported when they are asked for: agents are made of the others.
make_lazy(__name__, {"AgentPlugin": "plugin", "Client": "client"})
