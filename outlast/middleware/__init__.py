"""Middleware: the contract, the order of hooks, and the prebuilt ones."""

from outlast.middleware.compose import (
    compose_model_call,
    compose_tool_call,
    run_after_model,
    run_after_tool,
    run_before_model,
    run_before_tool,
)
from outlast.middleware.contract import HookContext, Middleware, create_middleware
from outlast.middleware.human_in_the_loop import DecisionRequest, ToolApproval, human_in_the_loop

__all__ = [
    "DecisionRequest",
    "HookContext",
    "Middleware",
    "ToolApproval",
    "compose_model_call",
    "compose_tool_call",
    "create_middleware",
    "human_in_the_loop",
    "run_after_model",
    "run_after_tool",
    "run_before_model",
    "run_before_tool",
]
