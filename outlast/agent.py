"""The agent: a definition in the worker's code, addressed by name. Validated whole when it is made."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, TypeAdapter

from outlast.messages import Json, system
from outlast.middleware.contract import check_middleware, hook_of, name_of
from outlast.model import Model, ModelRequest, ModelSettings, ResponseFormat, ToolSpec
from outlast.state import RunState
from outlast.tools import Tool, as_tool

if TYPE_CHECKING:
    from outlast.middleware.sub_agents import SubAgent

_log = logging.getLogger("outlast")
MAX_PARALLEL = 500


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """What an agent is made of.

    Attributes:
        name: How runs address it.
        model: ``"anthropic:claude-sonnet-4-5"``, or a model object. API keys are read by the worker.
        instructions: The system message of every model call.
        tools: Functions or ``@tool`` objects.
        middleware: Objects with hooks, in registration order; None or empty is a plain loop.
        response_format: A pydantic model (or any type) the final answer must fit, or a JSON schema.
        settings: Temperature and the like, for every model call.
        max_steps: Model turns before the run ends with ``MAX_STEPS``.
        on_error: What an error that no middleware handled does: ``pause`` parks the run until it is resumed,
            ``fail`` ends it.
        pause_timeout_seconds: End a parked run after this time; None parks for ever.
        max_parallel_tools: Tool bodies of one step that run at the same time, 500 at most.
        model_timeout_seconds: For one attempt of a model call.
    """

    name: str
    model: str | Model
    instructions: str = ""
    tools: Sequence[Tool | Callable[..., Any]] = ()
    middleware: Sequence[object] | None = None
    response_format: type | Mapping[str, Json] | None = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    max_steps: int = 200
    on_error: Literal["pause", "fail"] = "pause"
    pause_timeout_seconds: float | None = None
    max_parallel_tools: int = 16
    model_timeout_seconds: float = 600.0


class Agent:
    """An agent, checked.

    Attributes:
        tools: By name: what middlewares contribute first, in middleware order, then the agent's own; the first
            of a name wins (AC-21).
        module: The module that made it, from which a workflow imports its hooks under the sandbox's guard.

    Raises:
        TypeError, ValueError: Something in the options is wrong; the message names it and says what is allowed.
    """

    def __init__(self, options: AgentOptions) -> None:
        if not isinstance(options, AgentOptions):
            raise TypeError(f"Agent takes AgentOptions(name=..., model=...), not {type(options).__name__}")
        _check_options(options)
        self.options = options
        self.name = options.name
        self.middleware: tuple[object, ...] = tuple(options.middleware or ())
        _check_middlewares(self.name, self.middleware)
        self.tools: Mapping[str, Tool] = _collect_tools(self.name, options.tools, self.middleware)
        self.subagents: Mapping[str, Agent] = _collect_agents(self.name, self.middleware)
        self.models: tuple[str | Model, ...] = collect_models(options.model, self.middleware)
        self.module: str = sys._getframe(1).f_globals.get("__name__", "")

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    def descend(self, path: Sequence[str]) -> Agent | None:
        """The sub-agent at a path of names, or None."""
        agent: Agent | None = self
        for name in path:
            agent = agent.subagents.get(name) if agent is not None else None
        return agent

    def model_ref(self, model: str | Model | None = None) -> str | None:
        """What names a model in a payload: a model string itself, ``slot:N`` for an object; None if undeclared."""
        wanted = self.options.model if model is None else model
        return find_model(wanted, self.models)

    def resolve_ref(self, ref: str) -> str | Model:
        """The model a reference names; the worker's side of :meth:`model_ref`.

        Raises:
            LookupError: The slot is not in this worker's definition of the agent.
        """
        if not ref.startswith("slot:"):
            return ref
        index = int(ref.removeprefix("slot:"))
        if index >= len(self.models):
            raise LookupError(
                f"agent {self.name!r} has no model in slot {index} on this worker; is it another version?"
            )
        return self.models[index]

    @cached_property
    def tool_specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told of the tools."""
        return tuple(tool.spec for tool in self.tools.values())

    @cached_property
    def output_type(self) -> TypeAdapter[Any] | None:
        """Validates the final answer; None for free text or a bare JSON schema."""
        wanted = self.options.response_format
        return None if wanted is None or isinstance(wanted, Mapping) else TypeAdapter(wanted)

    @cached_property
    def response_format(self) -> ResponseFormat | None:
        """What the model is asked to answer in."""
        wanted = self.options.response_format
        if wanted is None:
            return None
        if isinstance(wanted, Mapping):
            return ResponseFormat(json_schema=dict(wanted))
        assert self.output_type is not None
        return ResponseFormat(name=getattr(wanted, "__name__", "response"), json_schema=self.output_type.json_schema())

    @cached_property
    def fingerprint(self) -> str:
        """12 hex digits that change with the middlewares, their order, the tools and their schemas."""
        parts = {
            "middleware": [name_of(middleware) for middleware in self.middleware],
            "tools": [spec.model_dump(mode="json") for spec in self.tool_specs],
            "on_error": self.options.on_error,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    def request(self, state: RunState) -> ModelRequest:
        """The next model call, before any hook: instructions, transcript, tools, format, settings."""
        head = (system(self.options.instructions),) if self.options.instructions else ()
        fixed = self._fixed if not self._edits_requests else _FIXED.validate_json(self._fixed_json)
        return ModelRequest.model_construct(messages=(*head, *state.transcript), **fixed.__dict__)

    @cached_property
    def _edits_requests(self) -> bool:
        return any(hook_of(item, name) for item in self.middleware for name in ("before_model", "wrap_model"))

    @cached_property
    def _fixed(self) -> _Fixed:
        return _Fixed(tools=self.tool_specs, response_format=self.response_format, settings=self.options.settings)

    @cached_property
    def _fixed_json(self) -> bytes:
        """Read anew for every request that hooks see: its dicts are theirs, whatever they do to them (AC-19)."""
        return _FIXED.dump_json(self._fixed)


class _Fixed(BaseModel):
    """What the requests of an agent have in common."""

    tools: tuple[ToolSpec, ...]
    response_format: ResponseFormat | None
    settings: ModelSettings


_FIXED = TypeAdapter(_Fixed)


def _check_options(options: AgentOptions) -> None:
    name: object = options.name
    if not isinstance(name, str) or not name.strip() or len(name) > 100 or not name.isprintable() or "/" in name:
        raise ValueError(f"AgentOptions.name must be 1 to 100 printable characters without '/', not {name!r:.120}")
    if not isinstance(options.model, str | Model):
        raise TypeError(
            f"agent {name!r}: model must be a text like 'openai:gpt-5' or a model object, not {options.model!r:.80}"
        )
    if isinstance(options.model, str) and not options.model.strip():
        raise ValueError(f"agent {name!r}: model is empty; name one, like 'openai:gpt-5'")
    if not isinstance(options.instructions, str):
        raise TypeError(f"agent {name!r}: instructions must be text, not {type(options.instructions).__name__}")
    if options.on_error not in ("pause", "fail"):
        raise ValueError(f"agent {name!r}: on_error must be 'pause' or 'fail', not {options.on_error!r}")
    for field_name in ("max_steps", "max_parallel_tools", "model_timeout_seconds", "pause_timeout_seconds"):
        value = getattr(options, field_name)
        if value is not None and not value > 0:
            raise ValueError(f"agent {name!r}: {field_name} must be more than 0, not {value!r}")
    if options.max_parallel_tools > MAX_PARALLEL:
        raise ValueError(f"agent {name!r}: max_parallel_tools must be at most {MAX_PARALLEL}")
    wanted: object = options.response_format
    if wanted is not None and not isinstance(wanted, Mapping | type) and not hasattr(wanted, "__origin__"):
        raise TypeError(f"agent {name!r}: response_format must be a type or a JSON schema, not {wanted!r:.80}")


def _check_middlewares(agent: str, middlewares: tuple[object, ...]) -> None:
    seen: set[str] = set()
    for middleware in middlewares:
        check_middleware(middleware)
        name = name_of(middleware)
        if name in seen:
            raise ValueError(f"agent {agent!r} has two middlewares named {name!r}; give one another name")
        seen.add(name)
    if len(middlewares) > 1:
        from outlast.middleware.order_check import check_order  # knows all prebuilt ones, which one agent may not need

        check_order(agent, middlewares, stacklevel=3)


def _collect_tools(
    agent: str, own: Sequence[Tool | Callable[..., Any]], middlewares: tuple[object, ...]
) -> dict[str, Tool]:
    tools: dict[str, Tool] = {}
    for middleware in middlewares:
        for candidate in map(as_tool, getattr(middleware, "tools", ())):
            if tools.setdefault(candidate.name, candidate) is not candidate:
                _log.warning("agent %r: tool %r of middleware %r is hidden by an earlier one of that name", agent,
                             candidate.name, name_of(middleware))  # fmt: skip
    names: set[str] = set()
    for candidate in map(as_tool, own):
        if candidate.name in names:
            raise ValueError(f"agent {agent!r} has two tools named {candidate.name!r}; pass name=... to one")
        names.add(candidate.name)
        if tools.setdefault(candidate.name, candidate) is not candidate:
            _log.warning("agent %r: its tool %r is hidden by the one a middleware contributes", agent, candidate.name)
    return tools


def _collect_agents(agent: str, middlewares: tuple[object, ...]) -> dict[str, Agent]:
    found: dict[str, Agent] = {}
    for middleware in middlewares:
        for spec in getattr(middleware, "subagents", ()):
            if spec.name in found:
                raise ValueError(f"agent {agent!r} has two sub-agents named {spec.name!r}")
            found[spec.name] = _specialist(spec, getattr(middleware, "model", ""))
    return found


def _specialist(spec: SubAgent, model: str | Model) -> Agent:
    return Agent(
        AgentOptions(
            name=spec.name,
            model=spec.model if spec.model is not None else model,
            instructions=spec.instructions,
            tools=spec.tools,
            middleware=spec.middleware,
            response_format=spec.response_format,
            max_steps=spec.max_steps,
        )
    )


def find_model(wanted: str | Model, models: Sequence[str | Model]) -> str | None:
    """What names a model in a payload, by its place among the models of an agent."""
    if isinstance(wanted, str):
        return wanted
    return next((f"slot:{index}" for index, known in enumerate(models) if known is wanted), None)


def collect_models(main: str | Model, middlewares: Sequence[object]) -> tuple[str | Model, ...]:
    """The models of an agent: its own, then what each middleware declares."""
    return (main, *(model for middleware in middlewares for model in getattr(middleware, "models", ())))
