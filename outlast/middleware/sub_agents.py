"""``create_sub_agent_middleware``: specialists behind one ``task`` tool, each a run of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outlast.messages import Json
from outlast.middleware.contract import HookContext, ToolNext
from outlast.middleware.options import check_model
from outlast.model import Model
from outlast.tools import Tool, ToolCall, ToolResult, error_result, tool

TASK = "task"


@dataclass(frozen=True, kw_only=True)
class SubAgent:
    """A specialist.

    Attributes:
        name, description: What the parent's model chooses by.
        instructions: The specialist's system message.
        model: Its own, else the middleware's.
        tools, middleware, response_format, max_steps: As in :class:`~outlast.agent.AgentOptions`.
    """

    name: str
    description: str
    instructions: str = ""
    tools: Sequence[Tool | Callable[..., Any]] = ()
    middleware: Sequence[object] = ()
    model: str | Model | None = None
    response_format: type | Mapping[str, Json] | None = None
    max_steps: int = 100

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ValueError(f"a sub-agent's name must not be empty and must be without '/', not {self.name!r}")


@dataclass(frozen=True)
class SubAgents:
    """See :func:`create_sub_agent_middleware`."""

    model: str | Model
    subagents: tuple[SubAgent, ...]
    tools: tuple[Tool, ...]
    name: str = field(default="sub_agents")

    async def around_tool(self, call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        """``task`` runs the specialist; every other tool goes on to its own body."""
        if call.name != TASK:
            return await call_next(call)
        wanted = call.args["subagent_type"]
        known = [spec.name for spec in self.subagents]
        if wanted not in known:
            return error_result(call, f"There is no sub-agent {wanted!r}. Choose one of: {', '.join(known)}.")
        outcome = await ctx.run_agent(wanted, call.args["description"], call)
        if outcome.error:
            return error_result(call, f"Sub-agent {wanted} could not finish: {outcome.error}")
        return ToolResult(call_id=call.id, name=call.name, content=outcome.text)


def create_sub_agent_middleware(model: str | Model, subagents: Sequence[SubAgent | Mapping[str, Any]]) -> SubAgents:
    """Specialists with isolated context, behind a ``task(description, subagent_type)`` tool (AC-118).

    A specialist sees its instructions and the description, nothing of the parent; the parent gets one result: the
    specialist's structured answer, else its last text that is not empty. It has its own history, limits, counters and
    approvals. What it asks a person is decided at the parent's run. Its usage counts in the parent's.

    Args:
        model: For every specialist that has none of its own.
        subagents: :class:`SubAgent` values, or dicts with the same keys.

    Raises:
        TypeError, ValueError: None given, a name twice, an unknown key, or a name with a slash.
            What an agent would refuse is refused when the agent is made.
    """
    check_model("create_sub_agent_middleware: model", model)
    if not subagents:
        raise ValueError("create_sub_agent_middleware: subagents is empty; give at least one")
    specs = [_spec(item) for item in subagents]
    names = [spec.name for spec in specs]
    doubles = sorted({name for name in names if names.count(name) > 1})
    if doubles:
        raise ValueError(f"create_sub_agent_middleware: two sub-agents are named {', '.join(doubles)}")
    return SubAgents(model, tuple(specs), tools=(_task_tool(specs),))


def _spec(item: SubAgent | Mapping[str, Any]) -> SubAgent:
    if isinstance(item, SubAgent):
        return item
    if not isinstance(item, Mapping):
        raise TypeError(f"a sub-agent is a SubAgent or a dict, not {item!r:.80}")
    unknown = sorted(item.keys() - SubAgent.__dataclass_fields__.keys())
    if unknown:
        known = ", ".join(SubAgent.__dataclass_fields__)
        raise ValueError(f"sub-agent {item.get('name')!r}: unknown key {', '.join(unknown)}; known: {known}")
    missing = [key for key in ("name", "description") if key not in item]
    if missing:
        raise ValueError(f"sub-agent {item.get('name')!r}: {' and '.join(missing)} missing")
    return SubAgent(**item)


def _task_tool(specs: Sequence[SubAgent]) -> Tool:
    listing = "\n".join(f"- {spec.name}: {spec.description}" for spec in specs)

    @tool(
        name=TASK,
        description="Hand a task to a specialist who sees only your description of it, and get back one report.\n"
        f"Specialists:\n{listing}",
    )
    def task(description: str, subagent_type: str) -> str:
        """Never executed: the middleware runs the specialist instead.

        Args:
            description: The whole task; the specialist knows nothing else.
            subagent_type: The specialist's name.
        """
        raise RuntimeError("the task tool runs only inside its middleware")

    return task
