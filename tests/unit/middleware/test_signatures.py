"""Every prebuilt middleware takes what the seed's table says, by these names, in this order, with these defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import outlast.middleware as prebuilt

RETRY = "max_retries=2, initial_delay_ms=1000, backoff_factor=2.0, max_delay_ms=60000, jitter=True, retry_on=None, "
RETRY += "on_failure='error'"
TABLE = {
    "model_retry": RETRY,
    "tool_retry": f"{RETRY}, tools=None",
    "model_fallback": "*fallbacks",
    "model_call_limit": "max_calls",
    "tool_call_limit": "tool_name=None, run_limit=None, exit_behavior='error'",
    "human_in_the_loop": "interrupt_on, decide=None",
    "pii_redact": "pii_type, strategy='redact', detector=None",
    "summarization_middleware": "model, trigger_tokens, keep_messages=20",
    "context_editing_middleware": "edits=None",
    "ClearToolUsesEdit": "trigger_tokens=100000, keep_recent=3, exclude_tools=()",
    "policy_filter": "allow=None, deny=None, exit_behavior='continue'",
    "todo_list": "",
    "llm_tool_selector_middleware": "model, max_tools=None, always_include=None",
    "tool_emulator_middleware": "model, tools=None",
    "filesystem_middleware": "root",
    "filesystem_tools": "root",
    "create_sub_agent_middleware": "model, subagents",
}


@pytest.mark.parametrize("name", TABLE)
def test_the_signature_is_the_seeds_and_what_is_ours_is_by_keyword_only(name: str) -> None:
    """AC-29, AC-33, AC-46, AC-54, AC-90, AC-99, AC-102, AC-115, AC-116, AC-117, AC-118."""
    made: Callable[..., Any] = getattr(prebuilt, name)
    parameters = inspect.signature(made).parameters.values()
    shown = [item.replace(annotation=item.empty) for item in parameters if item.kind is not item.KEYWORD_ONLY]
    assert ", ".join(map(str, shown)) == TABLE[name]


def test_every_one_of_the_table_is_there() -> None:
    assert {*TABLE, "list_todos"} <= set(prebuilt.__all__)
