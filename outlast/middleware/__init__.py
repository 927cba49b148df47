"""Middleware: the contract, the order of hooks, and the prebuilt ones.

Each prebuilt middleware is imported when it is first asked for, so that ``import outlast`` stays quick.
"""

from typing import TYPE_CHECKING

from outlast.lazy_package import make_lazy
from outlast.middleware.compose import (
    compose_model_call,
    compose_tool_call,
    run_after_model,
    run_after_tool,
    run_before_model,
    run_before_tool,
)
from outlast.middleware.contract import HookContext, Middleware, create_middleware

if TYPE_CHECKING:
    from outlast.middleware.context_editing import ClearToolUsesEdit, context_editing_middleware
    from outlast.middleware.filesystem import filesystem_middleware, filesystem_tools
    from outlast.middleware.human_in_the_loop import DecisionRequest, ToolApproval, human_in_the_loop
    from outlast.middleware.llm_tool_selector import llm_tool_selector_middleware
    from outlast.middleware.model_call_limit import model_call_limit
    from outlast.middleware.model_fallback import model_fallback
    from outlast.middleware.model_retry import model_retry
    from outlast.middleware.pii_redact import pii_redact
    from outlast.middleware.policy_filter import policy_filter
    from outlast.middleware.sub_agents import SubAgent, create_sub_agent_middleware
    from outlast.middleware.summarization import summarization_middleware
    from outlast.middleware.todo_list import list_todos, todo_list
    from outlast.middleware.tool_call_limit import tool_call_limit
    from outlast.middleware.tool_emulator import tool_emulator_middleware
    from outlast.middleware.tool_retry import tool_retry

_HOMES = {
    "ClearToolUsesEdit": "context_editing",
    "DecisionRequest": "human_in_the_loop",
    "SubAgent": "sub_agents",
    "ToolApproval": "human_in_the_loop",
    "context_editing_middleware": "context_editing",
    "create_sub_agent_middleware": "sub_agents",
    "filesystem_middleware": "filesystem",
    "filesystem_tools": "filesystem",
    "human_in_the_loop": "human_in_the_loop",
    "list_todos": "todo_list",
    "llm_tool_selector_middleware": "llm_tool_selector",
    "model_call_limit": "model_call_limit",
    "model_fallback": "model_fallback",
    "model_retry": "model_retry",
    "pii_redact": "pii_redact",
    "policy_filter": "policy_filter",
    "summarization_middleware": "summarization",
    "todo_list": "todo_list",
    "tool_call_limit": "tool_call_limit",
    "tool_emulator_middleware": "tool_emulator",
    "tool_retry": "tool_retry",
}
"""Where each prebuilt name lives."""

__all__ = [
    "ClearToolUsesEdit",
    "DecisionRequest",
    "HookContext",
    "Middleware",
    "SubAgent",
    "ToolApproval",
    "compose_model_call",
    "compose_tool_call",
    "context_editing_middleware",
    "create_middleware",
    "create_sub_agent_middleware",
    "filesystem_middleware",
    "filesystem_tools",
    "human_in_the_loop",
    "list_todos",
    "llm_tool_selector_middleware",
    "model_call_limit",
    "model_fallback",
    "model_retry",
    "pii_redact",
    "policy_filter",
    "run_after_model",
    "run_after_tool",
    "run_before_model",
    "run_before_tool",
    "summarization_middleware",
    "todo_list",
    "tool_call_limit",
    "tool_emulator_middleware",
    "tool_retry",
]


make_lazy(__name__, _HOMES)
