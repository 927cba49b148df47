"""``tool_emulator_middleware``: a model plays the tools, so that an agent can be tried without side effects."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from outlast.errors import clean_text
from outlast.messages import system, user
from outlast.middleware.contract import HookContext, ToolNext
from outlast.middleware.memory import recall, remember
from outlast.middleware.options import ToolNames, check_model, tool_names
from outlast.model import Model, ModelRequest
from outlast.tools import ToolCall, ToolResult

PROMPT = (
    "You stand in for a tool in a trial of a software agent; nothing is really done. You are given the tool's "
    "description, its JSON schema, the arguments of one call, and what you answered to earlier calls. Answer with what "
    "the tool would return and nothing else: realistic, specific, in the form its description suggests, and consistent "
    "with your earlier answers. Where a real tool would report an error, report it."
)
KEPT = 10
"""How many answers the model is reminded of, each cut to 1,000 characters."""


@dataclass(frozen=True)
class ToolEmulator:
    """See :func:`tool_emulator_middleware`. ``covers`` holds names, or None for all tools."""

    model: str | Model
    covers: frozenset[str] | None = None
    name: str = field(default="tool_emulator")

    @property
    def models(self) -> tuple[str | Model, ...]:
        """The model that plays the tools."""
        return (self.model,)

    async def around_tool(self, call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        """Ask the model; the tool itself is never called."""
        if self.covers is not None and call.name not in self.covers:
            return await call_next(call)
        answer = await ctx.call_model(self.model, self._request(call, ctx))
        text = answer.message.text.strip()
        memory = recall(ctx, self.name)
        earlier = memory.get("answers", [])
        shown = clean_text(f"{_line(call)} -> {text}", 1000)
        remember(ctx, self.name, {**memory, "answers": [*earlier, shown][-KEPT:]})
        return ToolResult(call_id=call.id, name=call.name, content=text, status="emulated")

    def _request(self, call: ToolCall, ctx: HookContext) -> ModelRequest:
        tool = ctx.tool(call.name)
        about = f"{tool.description}\nSchema: {json.dumps(tool.spec.parameters)}" if tool is not None else ""
        earlier = "\n".join(recall(ctx, self.name).get("answers", [])) or "(none)"
        question = f"Tool: {call.name}\n{about}\n\nEarlier calls and answers:\n{earlier}\n\nThe call:\n{_line(call)}"
        return ModelRequest(messages=(system(PROMPT), user(question)))


def tool_emulator_middleware(model: str | Model, tools: ToolNames | None = None) -> ToolEmulator:
    """Let a model answer in place of tools: they never run, also not after a restart (AC-116).

    Results have the status ``emulated``; policies, limits and approvals judge a call as if it were real. Register it
    first: what stands before it wraps the emulation. The model is reminded of its last answers, so that they agree.

    Args:
        model: Plays the tools; its tokens count in the run's usage.
        tools: Names, functions or tools that are emulated; None for all, an empty list for none.

    Raises:
        TypeError, ValueError: The model is none, or an item names no tool.
    """
    check_model("tool_emulator_middleware: model", model)
    covers = None if tools is None else tool_names("tool_emulator_middleware: tools", tools)
    return ToolEmulator(model, covers)


def _line(call: ToolCall) -> str:
    return f"{call.name}({json.dumps(call.args, ensure_ascii=False)})"
