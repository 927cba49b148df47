"""outlast: durable agents. An agent run is a Temporal workflow; it outlasts its worker."""

from outlast.agent import Agent, AgentOptions
from outlast.client import Client
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
from outlast.middleware.contract import HookContext, Middleware, create_middleware
from outlast.plugin import AgentPlugin
from outlast.state import RunResult
from outlast.tools import ToolContext, tool

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
