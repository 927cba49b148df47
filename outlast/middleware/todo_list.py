"""``todo_list``: the model plans with a ``write_todos`` tool; the list is kept with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict

from outlast.errors import ToolRejection
from outlast.messages import Json, TextBlock, system
from outlast.middleware.contract import HookContext, ToolNext
from outlast.middleware.memory import recall, remember
from outlast.middleware.options import check_text
from outlast.model import ModelRequest
from outlast.tools import Tool, ToolCall, ToolResult, tool

WRITE_TODOS = "write_todos"
NAME = "todo_list"
PROMPT = (
    "You have a todo list, written with write_todos. Use it for work of three steps or more; for less, just do it. "
    "Each write replaces the whole list, so repeat what stays. Mark an item in_progress before you begin it and "
    "completed once it is done, one at a time, and change the plan when what you find calls for it. Call write_todos "
    "at most once per turn. When all is done, give your answer in a message of its own."
)


class Todo(BaseModel):
    """One item."""

    model_config = ConfigDict(extra="forbid")

    content: str
    status: Literal["pending", "in_progress", "completed"]


@tool(
    name=WRITE_TODOS,
    description="Write your todo list. The list given replaces the one before, whole. "
    "The status of an item is pending, in_progress or completed.",
)
def _write_todos(todos: list[Todo]) -> str:
    """Never executed: the middleware keeps the list itself.

    Args:
        todos: The whole list, in order.
    """
    raise RuntimeError("write_todos runs only inside todo_list()")


@dataclass(frozen=True)
class TodoList:
    """See :func:`todo_list`."""

    prompt: str = PROMPT
    tools: tuple[Tool, ...] = (_write_todos,)
    name: str = field(default=NAME)

    def before_model(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
        """Tell the model how to use the list, after its instructions; another run's list goes."""
        kept = recall(ctx, self.name)
        if kept != ctx.invocation_state.get(self.name):
            remember(ctx, self.name, kept)
        first, *rest = request.messages
        if first.role != "system":
            return request.model_copy(update={"messages": (system(self.prompt), first, *rest)})
        head = first.model_copy(update={"blocks": (*first.blocks, TextBlock(text=f"\n\n{self.prompt}"))})
        return request.model_copy(update={"messages": (head, *rest)})

    def before_tool(self, call: ToolCall, ctx: HookContext) -> None:
        """Two lists in one turn contradict each other: refuse all of them (D54)."""
        if call.name == WRITE_TODOS and sum(other.name == WRITE_TODOS for other in ctx.calls) > 1:
            raise ToolRejection(
                "write_todos was called more than once in this turn; the list is unchanged. Call it once, with the "
                "whole list."
            )

    async def around_tool(self, call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        """Keep the list; every other tool goes on to its own body."""
        if call.name != WRITE_TODOS:
            return await call_next(call)
        todos: list[dict[str, Json]] = call.args["todos"]
        remember(ctx, self.name, {**recall(ctx, self.name), "todos": todos})
        lines = [f"- [{item['status']}] {item['content']}" for item in todos]
        return ToolResult(call_id=call.id, name=call.name, content="\n".join(["The list is now:", *lines]))


def todo_list(*, prompt: str = PROMPT) -> TodoList:
    """Give the model a todo list: the tool ``write_todos``, and a word on its use in the instructions (AC-113, AC-114).

    The list is part of the run: a new run begins without one, a restart does not lose it, a sub-agent has its own.
    Writing it runs no activity. Read it with :func:`list_todos`.

    Args:
        prompt: What is added to the instructions in place of ours.

    Raises:
        TypeError: The prompt is empty or no text.
    """
    check_text("todo_list: prompt", prompt)
    return TodoList(prompt)


class HasState(Protocol):
    """A hook's context, a run's result, a run's state."""

    @property
    def invocation_state(self) -> dict[str, Json]:
        """The per-run dict."""
        ...


def list_todos(source: HasState | Mapping[str, Json]) -> list[dict[str, str]]:
    """The run's list as ``{"content", "status"}`` dicts in order; empty where none was written.

    Args:
        source: A ``HookContext``, a ``RunResult``, or an ``invocation_state`` itself.
    """
    state = source if isinstance(source, Mapping) else source.invocation_state
    kept: Json = state.get(NAME)
    return [dict(item) for item in kept.get("todos", [])] if isinstance(kept, dict) else []
