"""``policy_filter``: which tools a run may call, by name; enforced where a call would run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from outlast.errors import AgentError, ToolRejection
from outlast.middleware.contract import HookContext
from outlast.middleware.name_rules import MAX_NAME, NameRules, name_rules
from outlast.middleware.options import check_choice
from outlast.model import ModelRequest
from outlast.tools import ToolCall

ExitBehavior = Literal["continue", "error"]


@dataclass(frozen=True)
class PolicyFilter:
    """See :func:`policy_filter`."""

    allow: NameRules | None
    deny: NameRules | None
    exit_behavior: ExitBehavior = "continue"
    hide: bool = False
    name: str = field(default="policy_filter")

    def permits(self, tool: str) -> bool:
        """The verdict on a tool's name: the same every time."""
        if len(tool) > MAX_NAME or (self.deny is not None and self.deny.match(tool)):
            return False
        return self.allow is None or self.allow.match(tool)

    def before_model(self, request: ModelRequest, ctx: HookContext) -> ModelRequest | None:
        """With ``hide``, do not tell the model of tools that it may not call."""
        kept = tuple(spec for spec in request.tools if self.permits(spec.name)) if self.hide else request.tools
        return None if len(kept) == len(request.tools) else request.replace(tools=kept)

    def before_tool(self, call: ToolCall, ctx: HookContext) -> None:
        """Judge the name that would run; an edit of it by a later hook is judged again."""
        if self.permits(call.name):
            return
        if self.exit_behavior == "error":
            raise AgentError("POLICY_DENIED", f"the run called {call.name[:MAX_NAME]}, which its policy does not allow")
        raise ToolRejection(
            f"{call.name[:MAX_NAME]} did not run: the policy of this run does not allow it. Go on without it."
        )


def policy_filter(
    allow: Iterable[str | re.Pattern[str]] | None = None,
    deny: Iterable[str | re.Pattern[str]] | None = None,
    exit_behavior: ExitBehavior = "continue",
    *,
    hide: bool = False,
    name: str = "policy_filter",
) -> PolicyFilter:
    """Allow and deny tools by exact name or compiled pattern; deny wins (AC-107 to AC-112).

    A text is a whole name, case-sensitive, never a pattern. A pattern is searched for anywhere in the name:
    ``re.compile("read")`` covers ``unread_delete`` too; anchor it (``^read_``) where you mean the beginning.

    Args:
        allow: With a list, what is not on it is denied; an empty list denies all; None allows what is not denied.
        deny: Denied whatever ``allow`` says.
        exit_behavior: ``continue`` answers a denied call with feedback; ``error`` ends the run with ``POLICY_DENIED``.
        hide: Also leave denied tools out of what the model is told.

    Raises:
        TypeError: A rule is neither a text nor a compiled pattern.
        ValueError: Both lists are None; a rule is empty; a pattern could take too long on a hostile name.
    """
    if allow is None and deny is None:
        raise ValueError("policy_filter: give allow, deny or both; with neither it would decide nothing")
    check_choice("policy_filter: exit_behavior", exit_behavior, get_args(ExitBehavior))
    return PolicyFilter(
        None if allow is None else name_rules("policy_filter: allow", allow),
        None if deny is None else name_rules("policy_filter: deny", deny),
        exit_behavior,
        hide,
        name,
    )
