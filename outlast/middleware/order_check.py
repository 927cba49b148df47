"""Orders of middlewares that defeat their purpose: refused where something is lost, warned of where they may be meant.

Asked when an agent is made. Each rule looks at one pair, the earlier registered first, and stands on a test of what the
pair does in a run (``tests/unit/middleware/test_order_check.py``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from inspect import unwrap
from itertools import combinations
from typing import Any, TypeAlias

from outlast.middleware.context_editing import ClearToolUsesEdit, ContextEditing
from outlast.middleware.contract import hook_of, imported_again, name_of
from outlast.middleware.human_in_the_loop import HumanInTheLoop
from outlast.middleware.llm_tool_selector import LlmToolSelector
from outlast.middleware.model_fallback import ModelFallback
from outlast.middleware.model_retry import ModelRetry
from outlast.middleware.pii_redact import PiiRedact
from outlast.middleware.policy_filter import PolicyFilter
from outlast.middleware.summarization import Summarization
from outlast.middleware.tool_call_limit import ToolCallLimit

Rule: TypeAlias = Callable[[object, object, Sequence[object]], str | None]
"""Takes the earlier, the later and all; gives what happens and the better order, or None."""


def check_order(agent: str, middlewares: Sequence[object], stacklevel: int) -> None:
    """Warn of doubtful pairs, as UserWarning.

    Args:
        stacklevel: As ``warnings.warn`` has it, from here.

    Raises:
        ValueError: A pair loses something; the message says what, and the right order.
    """
    for earlier, later in combinations(middlewares, 2):
        for rule in REFUSED:
            reason = rule(earlier, later, middlewares)
            if reason is not None:
                raise ValueError(f"agent {agent!r}: {reason}")
        for rule in () if imported_again.get() else DOUBTFUL:
            reason = rule(earlier, later, middlewares)
            if reason is not None:
                warnings.warn(f"agent {agent!r}: {reason}", UserWarning, stacklevel=stacklevel + 1)


def _stripped_before_summarized(earlier: object, later: object, _all: Sequence[object]) -> str | None:
    if not (isinstance(earlier, ContextEditing) and isinstance(later, Summarization)):
        return None
    if not any(isinstance(edit, ClearToolUsesEdit) for edit in earlier.edits):
        return None
    return (
        f"{earlier.name} is registered before {later.name}: it strips calls up to which there are notes, and the notes "
        f"are lost with them; register {later.name} before {earlier.name}"
    )


def _retry_that_hides_errors(earlier: object, later: object, _all: Sequence[object]) -> str | None:
    if not (isinstance(earlier, ModelFallback) and isinstance(later, ModelRetry)) or later.policy.on_failure == "error":
        return None
    return (
        f"{later.name} stands inside {earlier.name} and goes on with a message when its retries are used up "
        "(on_failure), so that no fallback is asked then; use on_failure='error', or register it before "
        f"{earlier.name}"
    )


def _asked_before_policy(earlier: object, later: object, _all: Sequence[object]) -> str | None:
    if not (isinstance(earlier, HumanInTheLoop) and isinstance(later, PolicyFilter)):
        return None
    denied = [tool for tool in earlier.interrupt_on if not later.permits(tool)]
    return _in_vain(earlier.name, later.name, ", ".join(denied)) if denied else None


def _asked_before_limit(earlier: object, later: object, _all: Sequence[object]) -> str | None:
    if not (isinstance(earlier, HumanInTheLoop) and isinstance(later, ToolCallLimit)) or not earlier.interrupt_on:
        return None
    if later.tool_name is not None and later.tool_name not in earlier.interrupt_on:
        return None
    return _in_vain(earlier.name, later.name, later.tool_name or "tools beyond the limit")


def _asked_before_blocked(earlier: object, later: object, _all: Sequence[object]) -> str | None:
    if not (isinstance(earlier, HumanInTheLoop) and isinstance(later, PiiRedact)) or not earlier.interrupt_on:
        return None
    if not later.apply_to_tool_args or later.rule.strategy != "block":
        return None
    return _in_vain(earlier.name, later.name, f"tools with a blocked {later.rule.pii_type} in their arguments")


def _in_vain(asks: str, refuses: str, what: str) -> str:
    return (
        f"{refuses} is registered after {asks}: people are asked about {what}, and what they approve is then refused; "
        f"register {refuses} before {asks}"
    )


def _edited_after_approval(earlier: object, later: object, _all: Sequence[object]) -> str | None:
    if not isinstance(earlier, HumanInTheLoop) or not earlier.interrupt_on or not _edits_calls(later):
        return None
    return (
        f"before_tool of {name_of(later)!r} runs after {earlier.name}: where it edits a call, people are asked "
        f"again; register it before {earlier.name}"
    )


def _edits_calls(middleware: object) -> bool:
    """Whether it has a hook that is declared to return a call; of one that declares nothing, nobody can tell."""
    if isinstance(middleware, HumanInTheLoop):  # it edits as a person says
        return False
    hook: Any = hook_of(middleware, "before_tool")
    declared = getattr(unwrap(hook), "__annotations__", {}).get("return") if hook is not None else None
    return "ToolCall" in (declared if isinstance(declared, str) else repr(declared))


def _told_before_redacted(earlier: object, later: object, everyone: Sequence[object]) -> str | None:
    if not (isinstance(earlier, Summarization | LlmToolSelector) and isinstance(later, PiiRedact)):
        return None
    team = [item for item in everyone if isinstance(item, PiiRedact)]
    if later is not team[-1] or any(item.rule.is_own for item in team):  # the last acts; activities act for own rules
        return None
    if not any(item.apply_to_input for item in team):
        return None
    return (
        f"{earlier.name} is registered before {later.name}: its model reads what users wrote, unredacted; register "
        f"{later.name} before {earlier.name}"
    )


REFUSED: tuple[Rule, ...] = (_stripped_before_summarized,)
DOUBTFUL: tuple[Rule, ...] = (
    _retry_that_hides_errors,
    _asked_before_policy,
    _asked_before_limit,
    _asked_before_blocked,
    _edited_after_approval,
    _told_before_redacted,
)
