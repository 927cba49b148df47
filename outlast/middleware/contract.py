"""The middleware contract: six optional hooks on an object with a name, and the context that every hook gets.

| hook           | runs                                  | order                                    |
|----------------|---------------------------------------|------------------------------------------|
| before_model   | before the model call                 | registration order                       |
| wrap_model     | around the model call                 | nested, first registered outermost       |
| after_model    | after the call                        | reverse order                            |
| before_tool    | before a tool executes                | registration order                       |
| around_tool    | around raw tool execution             | nested, first registered outermost       |
| after_tool     | after every result, rejections too    | reverse order                            |

The order is decided in :mod:`outlast.middleware.compose` and nowhere else. Hooks run in workflow code and
must be deterministic; whatever touches the outside world is a ``@side_effect``.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

from outlast.approvals import Decision, parse_decision, stored_decision
from outlast.errors import AgentError
from outlast.messages import Json
from outlast.model import Completion, Model, ModelRequest
from outlast.runtime import Runtime
from outlast.state import ChildOutcome
from outlast.tools import Tool, ToolCall, ToolResult

T = TypeVar("T")
MaybeAwaitable: TypeAlias = T | Awaitable[T]
ModelNext: TypeAlias = Callable[[ModelRequest], Awaitable[Completion]]
ToolNext: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]

HOOKS: Mapping[str, tuple[str, ...]] = {
    "before_model": ("request", "ctx"),
    "wrap_model": ("request", "call_next", "ctx"),
    "after_model": ("completion", "ctx"),
    "before_tool": ("call", "ctx"),
    "around_tool": ("call", "call_next", "ctx"),
    "after_tool": ("result", "ctx"),
}
"""Each hook's name and its positional parameters."""

imported_again: ContextVar[bool] = ContextVar("outlast_imported_again", default=False)
"""A run is importing its agent's module under guard: of what is doubtful there, the worker has warned already."""

_CAMEL = {"beforeModel", "wrapModel", "afterModel", "beforeTool", "aroundTool", "afterTool"}


class RunHandle(Protocol):
    """What a context needs of the engine beyond the runtime."""

    @property
    def agent_name(self) -> str:
        """The agent's name."""
        ...

    @property
    def model_name(self) -> str:
        """See :attr:`HookContext.model`."""
        ...

    @property
    def middleware(self) -> tuple[object, ...]:
        """See :attr:`HookContext.middleware`."""
        ...

    def model_ref(self, model: str | Model | None) -> str:
        """See :meth:`HookContext.model_ref`."""
        ...

    def find_tool(self, name: str) -> Tool | None:
        """See :meth:`HookContext.tool`."""
        ...

    def calls(self, only_open: bool) -> tuple[ToolCall, ...]:
        """See :attr:`HookContext.calls`."""
        ...

    async def call_model(self, model: str | Model, request: ModelRequest) -> Completion:
        """See :meth:`HookContext.call_model`."""
        ...

    async def sleep(self, seconds: float) -> None:
        """See :meth:`HookContext.sleep`."""
        ...

    async def run_agent(self, name: str, text: str, call: ToolCall) -> ChildOutcome:
        """See :meth:`HookContext.run_agent`."""
        ...

    def archive(self, before: str) -> None:
        """See :meth:`HookContext.archive`."""
        ...

    def emit(self, kind: str, data: Mapping[str, Json]) -> None:
        """See :meth:`HookContext.emit`."""
        ...

    def take_decision(self, call: ToolCall) -> Decision | None:
        """The answer to this call's interrupt, consumed by being read."""
        ...


@dataclass(frozen=True)
class HookContext:
    """What a hook may know and do. Everything it offers is replayed deterministically.

    Attributes:
        step: The model turn, 1-based; not counted up by retries and fallbacks (AC-23, AC-24).
        invocation_state: The run's one dict: the same object in every hook and step, never sent to a model.
            Keep a middleware's own values under its own name.

    Outside a run (in a unit test) build it with these two alone; what needs a run then raises RuntimeError.
    """

    step: int = 1
    invocation_state: dict[str, Json] = field(default_factory=dict)
    _runtime: Runtime | None = field(default=None, repr=False)
    _run: RunHandle | None = field(default=None, repr=False)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._need(self._runtime).run_id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._need(self._run).agent_name

    @property
    def model(self) -> str:
        """The name of the agent's own model, ``provider:model``."""
        return self._need(self._run).model_name

    @property
    def middleware(self) -> tuple[object, ...]:
        """The agent's middlewares in registration order; empty outside a run."""
        return self._run.middleware if self._run is not None else ()

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the current step as they would run now, in call order, refused ones too."""
        return self._need(self._run).calls(only_open=False)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Those of :attr:`calls` that have no result yet: neither refused nor finished."""
        return self._need(self._run).calls(only_open=True)

    def tool(self, name: str) -> Tool | None:
        """The agent's tool of this name: its description, schema and options."""
        return self._need(self._run).find_tool(name)

    def model_ref(self, model: str | Model) -> str:
        """What names a model in ``ModelRequest.model``: a model string itself, or the place of a declared object.

        Raises:
            AgentError: ``UNKNOWN_MODEL``: a model object that no middleware declared in ``models``.
        """
        return self._need(self._run).model_ref(model)

    @property
    def random(self) -> random.Random:
        """Randomness that gives the same values on replay; use it instead of the ``random`` module."""
        return self._need(self._runtime).random

    def now(self) -> datetime:
        """The time, UTC; use it instead of ``datetime.now()``."""
        return self._need(self._runtime).now()

    def uuid(self) -> UUID:
        """A fresh id; use it instead of ``uuid.uuid4()``."""
        return self._need(self._runtime).uuid()

    async def sleep(self, seconds: float) -> None:
        """A durable timer: survives restarts, costs nothing while it runs."""
        await self._need(self._run).sleep(seconds)

    async def call_model(self, model: str | Model, request: ModelRequest) -> Completion:
        """Call another model, as an activity; its tokens count in the run's usage.

        Raises:
            ModelError: The call failed.
            AgentError: ``UNKNOWN_MODEL``: a model object that no middleware declared in ``models``.
        """
        return await self._need(self._run).call_model(model, request)

    async def run_agent(self, name: str, text: str, call: ToolCall) -> ChildOutcome:
        """Run a sub-agent that a middleware declared in ``subagents``, as a run of its own, and wait for its end.

        Only from ``around_tool``, once per call: the call names the child, so that a restart finds it again. What
        the child asks a person is pending at this run too, with its path.
        """
        return await self._need(self._run).run_agent(name, text, call)

    def archive(self, before: str) -> None:
        """Declare old what stands before the message of this id: no hook needs to see it in a request again.

        With storage it leaves the run's memory when the run next continues as new, so that the run costs the same
        however long it lasts. It stays in the transcript that ``run.messages()`` and ``result()`` return; of pinned
        messages, and of the user's first and newest, copies stay in the requests too.
        """
        self._need(self._run).archive(before)

    def emit(self, data: Mapping[str, Json] | str) -> None:
        """Tell the run's watchers something: JSON values, or a line of text."""
        self._need(self._run).emit("custom", {"text": data} if isinstance(data, str) else data)

    def decision(self, call: ToolCall) -> Decision | None:
        """What was decided on a call, if anything: the answer to its interrupt, else a standing decision.

        An answer is consumed by being read here. Standing decisions are looked up in
        ``invocation_state["__hitl_decisions"]`` by exact ``hitl_key``, then by bare tool name; an exact one
        is consumed, a bare one stands for the rest of the run (AC-62, AC-66).

        Raises:
            AgentError: ``HITL_DECISION``: a stored value has no form of a decision.
        """
        answered = self._run.take_decision(call) if self._run is not None else None
        if answered is not None:
            return answered
        found = stored_decision(self.invocation_state, call.name, call.args)
        if found is None:
            return None
        key, value = found
        try:
            decision = parse_decision(value)
        except ValueError as error:
            raise AgentError("HITL_DECISION", f"the stored decision {key!r}: {error}") from error
        if key != call.name:
            del self.invocation_state["__hitl_decisions"][key]
        return decision

    @staticmethod
    def _need(part: T | None) -> T:
        if part is None:
            raise RuntimeError("this HookContext belongs to no run; use MemoryRuntime or local_env of outlast.testing")
        return part


BeforeModel: TypeAlias = Callable[[ModelRequest, HookContext], MaybeAwaitable[ModelRequest | None]]
WrapModel: TypeAlias = Callable[[ModelRequest, ModelNext, HookContext], MaybeAwaitable[Completion]]
AfterModel: TypeAlias = Callable[[Completion, HookContext], MaybeAwaitable[Completion | None]]
BeforeTool: TypeAlias = Callable[[ToolCall, HookContext], MaybeAwaitable[ToolCall | None]]
AroundTool: TypeAlias = Callable[[ToolCall, ToolNext, HookContext], MaybeAwaitable[ToolResult]]
AfterTool: TypeAlias = Callable[[ToolResult, HookContext], MaybeAwaitable[ToolResult | None]]


class Middleware:
    """Optional base class: set ``name``, contribute ``tools`` and ``models``, define any of the six hooks as methods.

    Any object of this shape is a middleware. Instances must not change while runs use them.
    """

    name: str = ""
    tools: Sequence[Tool | Callable[..., Any]] = ()
    models: Sequence[str | Model] = ()


@dataclass(frozen=True)
class FunctionMiddleware:
    """A middleware made of functions; see :func:`create_middleware`. A hook that is None is absent."""

    name: str
    tools: tuple[Tool | Callable[..., Any], ...] = ()
    models: tuple[str | Model, ...] = ()
    before_model: BeforeModel | None = None
    wrap_model: WrapModel | None = None
    after_model: AfterModel | None = None
    before_tool: BeforeTool | None = None
    around_tool: AroundTool | None = None
    after_tool: AfterTool | None = None


def create_middleware(
    name: str,
    *,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    models: Sequence[str | Model] = (),
    before_model: BeforeModel | None = None,
    wrap_model: WrapModel | None = None,
    after_model: AfterModel | None = None,
    before_tool: BeforeTool | None = None,
    around_tool: AroundTool | None = None,
    after_tool: AfterTool | None = None,
) -> FunctionMiddleware:
    """A middleware from functions, sync or async, any subset of the six hooks (AC-3).

    ``models`` names the model objects that its hooks call with ``ctx.call_model``.

    Raises:
        TypeError: An unknown hook, or a hook that does not take the contract's parameters.
        ValueError: The name is empty.
    """
    middleware = FunctionMiddleware(
        name=name,
        tools=tuple(tools),
        models=tuple(models),
        before_model=before_model,
        wrap_model=wrap_model,
        after_model=after_model,
        before_tool=before_tool,
        around_tool=around_tool,
        after_tool=after_tool,
    )
    check_middleware(middleware)
    return middleware


def hook_of(middleware: object, name: str) -> Callable[..., Any] | None:
    """A middleware's hook of this name, or None."""
    hook = getattr(middleware, name, None)
    return hook if callable(hook) else None


def name_of(middleware: object) -> str:
    """A middleware's name."""
    return str(getattr(middleware, "name", type(middleware).__name__))


def check_middleware(middleware: object) -> None:
    """Raise TypeError or ValueError, saying what to change, unless this object is a middleware."""
    if isinstance(middleware, type):
        raise TypeError(
            f"middleware must be an object, not the class {middleware.__name__}; write {middleware.__name__}()"
        )
    name = getattr(middleware, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"{middleware!r} is not a middleware: it has no `name` text; see create_middleware")
    if not name.strip() or len(name) > 100 or not name.isprintable():
        raise ValueError(f"a middleware's name must be 1 to 100 characters that can be printed, not {name!r:.120}")
    strays = sorted(_CAMEL & set(dir(middleware)))
    if strays:
        raise TypeError(f"middleware {name!r} has {', '.join(strays)}; the hooks' names are {', '.join(HOOKS)}")
    for hook_name, parameters in HOOKS.items():
        hook = getattr(middleware, hook_name, None)
        if hook is not None:
            _check_hook(name, hook_name, hook, parameters)
    if not any(hook_of(middleware, hook) for hook in HOOKS) and not getattr(middleware, "tools", ()):
        raise TypeError(f"middleware {name!r} has none of the hooks {', '.join(HOOKS)} and no tools")


def _check_hook(name: str, hook_name: str, hook: object, parameters: tuple[str, ...]) -> None:
    wanted = f"{hook_name}({', '.join(parameters)})"
    if not callable(hook):
        raise TypeError(f"middleware {name!r}: {hook_name} must be a function {wanted}, not {hook!r:.80}")
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):
        return  # a builtin without a signature: calling it will tell
    try:
        signature.bind(*parameters)
    except TypeError as error:
        raise TypeError(f"middleware {name!r}: {hook_name}{signature} must take {wanted}: {error}") from error
