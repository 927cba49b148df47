"""One activity per tool name, so that Temporal's UI and metrics show the tool; plus the running of a tool's body."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json
from temporalio import activity
from temporalio.common import RawValue

from outlast.activities.failures import raise_setup_failure, raise_tool_failure, refuse_unreadable
from outlast.activities.filters import filtered
from outlast.activities.heartbeats import heartbeats
from outlast.activities.models import json_value
from outlast.activities.sizes import MAX_PROGRESS_BYTES, has_storage, max_result_bytes
from outlast.errors import OutlastError, ToolError, UnknownAgent, class_names
from outlast.messages import Json
from outlast.middleware.compose import describe
from outlast.middleware.edge_filter import Edges
from outlast.registry import AgentRegistry
from outlast.state import check_json
from outlast.tools import Tool, ToolContext, ToolResult, content_of, in_thread


class ToolCallInput(BaseModel):
    """The one argument of a tool's activity; ``calls`` is how many the step has, which share a history."""

    agent: str
    tool: str
    call_id: str
    key: str
    args: dict[str, Json] = Field(default_factory=dict)
    attempt: int = 1
    decision: str | None = None
    calls: int = 1


async def run_tool(
    tool: Tool, args: Mapping[str, Json], context: ToolContext, executor: Executor | None = None
) -> ToolResult:
    """Run a tool's body: async in place, sync in a thread so that it never blocks the worker's loop.

    Raises:
        HitlInterrupt, ToolRejection, AgentError: The body's own word.
        ToolError: Anything else that the body raised, ``BaseException`` included.
    """
    try:
        values = tool.call_arguments(args, context)
    except ValidationError as error:
        raise ToolError(f"{tool.name} was not run: its arguments do not fit: {tool.fault(args) or error}") from None
    try:
        if inspect.iscoroutinefunction(inspect.unwrap(tool.fn)):
            value = await tool.fn(**values)
        else:
            value = await in_thread(lambda: tool.fn(**values), executor)
            value = await value if isinstance(value, Awaitable) else value
        if isinstance(value, ToolResult):
            return value.replace(call_id=context.call_id, name=tool.name, content=content_of(value.content))
        return ToolResult(call_id=context.call_id, name=tool.name, content=content_of(value))
    except (OutlastError, asyncio.CancelledError):
        raise
    except BaseException as error:
        text = f"{tool.name} failed: {describe(error, 100_000)}"  # cut where it is used
        failure = ToolError(text, tool=tool.name, error_classes=class_names(error))
        verdict = getattr(error, "__outlast_retryable__", None)
        if isinstance(verdict, bool):
            failure.__dict__["__outlast_retryable__"] = verdict
        raise failure from error


class ToolActivities:
    """The tools of all agents of one worker; tools of one name share an activity and are told apart by the agent.

    Larger results than :mod:`outlast.activities.sizes` allows become an error result.
    """

    def __init__(self, agents: AgentRegistry, executor: Executor | None = None) -> None:
        self._agents = agents
        self._executor = executor

    def definitions(self) -> list[Callable[..., Any]]:
        """One activity function per tool name."""
        names = sorted({name for _, agent in self._agents.everyone() for name in agent.tools})
        return [self._definition(name) for name in names]

    def _definition(self, name: str) -> Callable[..., Any]:
        async def call_tool(call: Any) -> RawValue:  # noqa: ANN401 - decoded JSON
            refuse_unreadable(call)
            return await self._call(ToolCallInput.model_validate(call))

        return activity.defn(name=name)(call_tool)

    async def _call(self, call: ToolCallInput) -> RawValue:
        try:
            tool = self._agents.get(call.agent).tools[call.tool]
        except (KeyError, UnknownAgent):
            where = f"tool {call.tool!r} of agent {call.agent!r}"
            raise_setup_failure(where, "this worker does not have it; is another version of the code running?")
        edges = self._agents.edges(call.agent)
        cancelled = threading.Event()
        progress: list[Json] = []
        context = ToolContext(
            run_id=activity.info().workflow_id or "",
            call_id=call.call_id,
            idempotency_key=call.key,
            attempt=call.attempt + activity.info().attempt - 1,
            decision=call.decision,
            heartbeat=_progress(progress, edges),
            _cancelled=cancelled,
        )
        try:
            async with heartbeats(lambda: tuple(progress)):
                answer = await run_tool(tool, call.args, context, self._executor)
                result = await filtered(edges, lambda: edges.result(answer))
            return json_value(_bounded(result, max_result_bytes(call.calls)))
        except asyncio.CancelledError:
            cancelled.set()
            raise
        except BaseException as error:
            raise_tool_failure(error, edges)


def _bounded(result: ToolResult, limit: int) -> bytes:
    data = result.model_dump_json(exclude_none=True).encode("utf-8", "replace")
    if len(data) <= limit:
        return data
    advice = "" if has_storage() else ", or have the operator configure storage"
    text = (
        f"{result.name} ran, but its result of {len(data):,} bytes is more than the {limit:,} that can be kept. "
        f"Ask for less{advice}."
    )
    return result.replace(content=text, is_error=True).model_dump_json(exclude_none=True).encode()


def _progress(kept: list[Json], edges: Edges) -> Callable[..., None]:
    """A heartbeat function for any thread; the newest details go out with the next automatic heartbeat."""

    def heartbeat(*details: Json) -> None:
        check_json(list(details), "heartbeat")  # here, where the tool reads it; in the background nobody would
        if (size := len(to_json(details))) > MAX_PROGRESS_BYTES:
            raise ValueError(f"heartbeat: {size:,} bytes; report progress with at most {MAX_PROGRESS_BYTES:,}")
        kept[:] = [edges.output(item) for item in details]

    return heartbeat
