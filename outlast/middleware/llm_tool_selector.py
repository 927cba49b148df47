"""``llm_tool_selector_middleware``: a small model picks the tools that matter for what the user wants now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outlast.errors import ToolRejection, clean_text, is_control
from outlast.middleware.contract import HookContext
from outlast.middleware.memory import recall, remember
from outlast.middleware.options import ToolNames, check_model, check_whole, tool_names
from outlast.middleware.tool_selection import chosen, question, turn_key
from outlast.model import Model, ModelRequest, ToolSpec
from outlast.tools import ToolCall

MANY = 10
"""Without ``max_tools``, fewer tools than this are not worth a question."""


@dataclass(frozen=True)
class LlmToolSelector:
    """See :func:`llm_tool_selector_middleware`. Kept: what was asked for (``key``) and the names left out since."""

    model: str | Model
    max_tools: int | None = None
    always_include: frozenset[str] = frozenset()
    name: str = field(default="llm_tool_selector")

    @property
    def models(self) -> tuple[str | Model, ...]:
        """The selector."""
        return (self.model,)

    async def before_model(self, request: ModelRequest, ctx: HookContext) -> ModelRequest | None:
        """Show the model what was selected for this user turn; select where the turn or the tools are new."""
        choice = [spec for spec in request.tools if spec.name not in self.always_include]
        memory = recall(ctx, self.name)
        key = turn_key(request.messages, choice)
        if len(choice) <= self.max_tools if self.max_tools is not None else len(choice) < MANY:
            memory.pop("key", None)
            memory["left_out"] = []
        elif memory.get("key") != key:
            memory["key"] = key
            memory["left_out"] = await self._left_out(request, choice, ctx)
        remember(ctx, self.name, memory)
        kept = tuple(spec for spec in request.tools if spec.name not in memory["left_out"])
        return None if len(kept) == len(request.tools) else request.replace(tools=kept)

    def before_tool(self, call: ToolCall, ctx: HookContext) -> None:
        """What was left out does not run, however the model came by its name."""
        if call.name in recall(ctx, self.name).get("left_out", []):
            raise ToolRejection(f"{call.name} did not run: it is not among the tools offered in this turn.")

    async def _left_out(self, request: ModelRequest, choice: Sequence[ToolSpec], ctx: HookContext) -> list[str]:
        """The names that the selector did not choose; none where it failed or chose nothing that exists."""
        names = [spec.name for spec in choice]
        missing = sorted(self.always_include - {spec.name for spec in request.tools})
        if missing:
            ctx.emit(f"tool selection: always_include names no tool of this agent: {', '.join(missing)}")
        try:
            answer = await ctx.call_model(self.model, question(request.messages, choice, self.max_tools))
            wanted = chosen(answer.message.text)
        except Exception as error:
            if is_control(error):
                raise
            ctx.emit(f"tool selection failed, all tools are offered: {type(error).__name__}")
            return []
        known = [name for name in dict.fromkeys(wanted) if name in names][: self.max_tools]
        unknown = [name for name in wanted if name not in names and name not in self.always_include]
        if unknown:
            ctx.emit(clean_text(f"tool selection: unknown names ignored: {', '.join(unknown)}", 500))
        return [name for name in names if name not in known] if known else []


def llm_tool_selector_middleware(
    model: str | Model, max_tools: int | None = None, always_include: ToolNames | None = None
) -> LlmToolSelector:
    """Narrow many tools to the relevant few with a call of a selector model, once per user turn (AC-115).

    The selector reads the newest messages, not the last one alone. What it leaves out is not advertised and, if called
    all the same, not run. If it fails, or names nothing that exists, all tools are offered.

    Args:
        max_tools: At most so many are kept; no question is asked where there are no more. None: no bound, and a
            question from 10 tools up.
        always_include: Names, functions or tools that are always offered and do not count.

    Raises:
        TypeError, ValueError: An option is out of range; the message names it.
    """
    check_model("llm_tool_selector_middleware: model", model)
    if max_tools is not None:
        check_whole("llm_tool_selector_middleware: max_tools", max_tools, 1)
    always = tool_names("llm_tool_selector_middleware: always_include", always_include or ())
    return LlmToolSelector(model, max_tools, always)
