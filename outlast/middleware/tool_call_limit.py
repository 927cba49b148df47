"""``tool_call_limit``: how many tool calls a run may make, of all tools together or of one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from outlast.errors import AgentError, ToolRejection
from outlast.messages import Json
from outlast.middleware.contract import HookContext, ToolNext
from outlast.middleware.memory import recall, remember
from outlast.middleware.options import check_choice, check_text, check_whole
from outlast.tools import ToolCall, ToolResult

ExitBehavior = Literal["error", "continue"]


@dataclass(frozen=True)
class ToolCallLimit:
    """See :func:`tool_call_limit`.

    A call takes a place when it is gated, keeps it once it runs, and gives it back if it is refused after all. Kept:
    ``done``, calls of earlier steps; ``places``, call ids of this step, true once running; ``blocked``, the newest step
    with a blocked call and how many such steps came in a row.
    """

    tool_name: str | None
    run_limit: int
    exit_behavior: ExitBehavior = "error"
    max_blocked_steps: int = 10
    name: str = field(default="tool_call_limit")

    def before_tool(self, call: ToolCall, ctx: HookContext) -> None:
        """Take a place, or block the call. Asked again for an edited call it changes nothing."""
        memory = recall(ctx, self.name)
        still_open = {item.id for item in ctx.open_calls}
        places = {key: runs for key, runs in memory.get("places", {}).items() if runs or key in still_open}
        memory["places"] = places
        if not self._counts(call):
            places.pop(call.id, None)  # it was edited to be another tool's call
        elif call.id not in places:
            if memory.get("done", 0) + len(places) >= self.run_limit:
                self._block(call, memory, ctx)
            places[call.id] = False
        remember(ctx, self.name, memory)

    async def around_tool(self, call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        """The call runs: its place is taken for good."""
        if self._counts(call):
            memory = recall(ctx, self.name)
            memory.setdefault("places", {})[call.id] = True
            remember(ctx, self.name, memory)
        return await call_next(call)

    def after_tool(self, result: ToolResult, ctx: HookContext) -> None:
        """Count what ran; what did not gives its place back."""
        memory = recall(ctx, self.name)
        if memory.setdefault("places", {}).pop(result.call_id, False):
            memory["done"] = memory.get("done", 0) + 1
        remember(ctx, self.name, memory)

    def _counts(self, call: ToolCall) -> bool:
        return self.tool_name is None or call.name == self.tool_name

    def _block(self, call: ToolCall, memory: dict[str, Json], ctx: HookContext) -> None:
        what = f"calls of {self.tool_name}" if self.tool_name is not None else "tool calls"
        step, row = memory.get("blocked", [0, 0])
        row = row if step == ctx.step else row + 1 if step == ctx.step - 1 else 1
        memory["blocked"] = [ctx.step, row]
        remember(ctx, self.name, memory)
        if self.exit_behavior == "error":
            raise AgentError("BUDGET_EXCEEDED", f"the run asked for more than its {self.run_limit} {what}")
        if row > self.max_blocked_steps:
            raise AgentError(
                "BUDGET_EXCEEDED",
                f"the run kept asking for more than its {self.run_limit} {what}, {row} steps in a row",
            )
        raise ToolRejection(
            f"{call.name} did not run: this run may make {self.run_limit} {what} and has used them up. "
            "Do not call it again; finish with what you have."
        )


def tool_call_limit(
    tool_name: str | None = None,
    run_limit: int | None = None,
    exit_behavior: ExitBehavior = "error",
    *,
    max_blocked_steps: int = 10,
    name: str | None = None,
) -> ToolCallLimit:
    """A budget of tool calls per run (AC-46 to AC-53).

    Counted are calls that reached execution, whatever came of them; a retry is no new call, a refused call is none.
    In a parallel batch the first that fit run. A call that waits for a person holds its place.

    Args:
        tool_name: Only this tool is counted and blocked; None counts all together.
        run_limit: Required; 0 allows none.
        exit_behavior: ``error`` ends the run with ``BUDGET_EXCEEDED`` and runs nothing of the batch that would be too
            much; ``continue`` answers each blocked call with feedback and goes on.
        max_blocked_steps: With ``continue``, the run ends after more than so many steps in a row with a blocked call.
        name: ``tool_call_limit``, or ``tool_call_limit.TOOL``, unless given: two limiters need two names.

    Raises:
        TypeError, ValueError: An option is missing or out of range.
    """
    if tool_name is not None:
        check_text("tool_call_limit: tool_name", tool_name)
    if run_limit is None:
        raise TypeError("tool_call_limit: run_limit is missing; give the number of calls a run may make")
    check_whole("tool_call_limit: run_limit", run_limit, 0)
    check_whole("tool_call_limit: max_blocked_steps", max_blocked_steps, 1)
    check_choice("tool_call_limit: exit_behavior", exit_behavior, get_args(ExitBehavior))
    own_name = name or ("tool_call_limit" if tool_name is None else f"tool_call_limit.{tool_name}")
    return ToolCallLimit(tool_name, run_limit, exit_behavior, max_blocked_steps, own_name)
