"""Tools: plain Python functions that a model may call, with their JSON schema and how they may be run.

The body of a tool runs in an activity on a worker, never in workflow code. Everything here is lazy: the
decorator only stores the function, since a workflow imports the module that defines it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError

from outlast.messages import Json, MediaBlock, ResultStatus, TextBlock, ToolResultBlock, Value, well_formed
from outlast.model import ToolSpec

ToolContent: TypeAlias = str | tuple[TextBlock | MediaBlock, ...]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class ToolCall(Value):
    """A call as hooks see it: what would run now, edits included. ``args`` is a copy; return a new call to edit it."""

    id: str
    name: str
    args: dict[str, Json] = Field(default_factory=dict)


class ToolResult(Value):
    """The result of a call as hooks see it.

    Attributes:
        content: Text, or a tuple of text and media blocks.
        status: ``executed``, ``failed``, ``rejected``, ``cancelled``, ``emulated``, or ``unknown`` where a
            lost worker may or may not have run a non-idempotent tool.
    """

    call_id: str
    name: str
    content: ToolContent = ""
    is_error: bool = False
    status: ResultStatus = "executed"

    @property
    def text(self) -> str:
        """The text of the content."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextBlock))

    def block(self, *, executed_name: str | None = None, executed_args: str | None = None) -> ToolResultBlock:
        """The transcript's form of this result."""
        content = (TextBlock(text=self.content),) if isinstance(self.content, str) else self.content
        return ToolResultBlock(
            call_id=self.call_id,
            name=self.name,
            content=content,
            is_error=self.is_error,
            status=self.status,
            executed_name=executed_name,
            executed_args=executed_args,
        )


class Heartbeat(Protocol):
    """Reports progress; any thread may call it."""

    def __call__(self, *details: Json) -> None:
        """Details are JSON values; the newest are shown."""
        ...


@dataclass(frozen=True)
class ToolContext:
    """What a tool may know of its call. A parameter annotated with this type is filled in, and hidden from the model.

    Attributes:
        run_id: The run's workflow id.
        call_id: The call's id in the transcript.
        idempotency_key: The same for every attempt of this call, across crashes, resets and continue-as-new.
            Hand it to services that deduplicate.
        attempt: 1 for the first try of this call.
        decision: ``approve`` or ``edit`` where a person let this call through, else None.
        heartbeat: Reports progress (JSON values), shown to watchers. Heartbeats are also sent automatically.
    """

    run_id: str
    call_id: str
    idempotency_key: str
    attempt: int = 1
    decision: str | None = None
    heartbeat: Heartbeat = field(default=lambda *details: None, repr=False)
    _cancelled: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def cancelled(self) -> bool:
        """True once the run was cancelled; a long synchronous tool should look now and then and stop."""
        return self._cancelled.is_set()


@dataclass(frozen=True)
class ToolOptions:
    """How a tool is run.

    Attributes:
        timeout_seconds: For one attempt.
        idempotent: False means at most once per call: after a lost worker the outcome is reported as unknown.
        max_attempts: Attempts after a lost worker, a time-out or a storage that is away (never after an exception of
            the body); ten last some four minutes.
        task_queue: Run on the workers of another queue.
        local: A local activity: for quick, pure tools; nothing is scheduled on the server.
    """

    timeout_seconds: float = 300.0
    idempotent: bool = True
    max_attempts: int = 10
    task_queue: str | None = None
    local: bool = False

    def __post_init__(self) -> None:
        if self.timeout_seconds <= 0:
            raise ValueError(f"timeout_seconds must be more than 0, not {self.timeout_seconds!r}")
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, not {self.max_attempts!r}")
        if self.local and self.task_queue is not None:
            raise ValueError("a local tool runs on the worker of its run; drop task_queue or local=True")


@dataclass(frozen=True)
class Tool:
    """A function with a name, a description and a schema. Made by :func:`tool`; still callable as the function."""

    fn: Callable[..., Any]
    name: str
    options: ToolOptions = ToolOptions()
    description_override: str | None = None
    schema_override: Mapping[str, Json] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the function takes and gives
        """Call the function itself."""
        return self.fn(*args, **kwargs)

    @cached_property
    def description(self) -> str:
        """The docstring's text before its Args section, unless given."""
        return self.description_override if self.description_override is not None else _docstring(self.fn)[0]

    @cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter annotated :class:`ToolContext`, if any."""
        return next((name for name, hint in _hints(self.fn).items() if hint is ToolContext), None)

    @cached_property
    def arguments(self) -> type[BaseModel]:
        """A pydantic model of the arguments."""
        return _arguments_model(self)

    @cached_property
    def spec(self) -> ToolSpec:
        """What the model is shown."""
        schema = dict(self.schema_override) if self.schema_override else self.arguments.model_json_schema()
        schema.pop("title", None)
        schema.pop("description", None)
        return ToolSpec(name=self.name, description=self.description, parameters=schema)

    def fault(self, args: Mapping[str, Json]) -> str | None:
        """Why these arguments do not fit, in words a model can act on, or None."""
        try:
            self.arguments.model_validate(dict(args))
        except ValidationError as error:
            return _readable(error)
        return None

    def call_arguments(self, args: Mapping[str, Json], context: ToolContext) -> dict[str, Any]:
        """The keyword arguments for the function, converted to its types, with the context filled in.

        Raises:
            pydantic.ValidationError: The arguments do not fit.
        """
        model = self.arguments.model_validate(dict(args))
        values = {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}
        values |= model.model_extra or {}
        if self.context_parameter is not None:
            values[self.context_parameter] = context
        return values


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float = 300.0,
    idempotent: bool = True,
    max_attempts: int = 10,
    task_queue: str | None = None,
    local: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_seconds: float = 300.0,
    idempotent: bool = True,
    max_attempts: int = 10,
    task_queue: str | None = None,
    local: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a sync or async function: ``@tool`` or ``@tool(idempotent=False)``.

    The schema comes from the signature (pydantic), descriptions from the docstring's first part and its
    ``Args:`` section. The function may return text, any JSON value, a pydantic model, or content blocks.

    Raises:
        TypeError: Not a function; a parameter without annotation, ``*args``, or a positional-only parameter.
        ValueError: A name that providers refuse, or an option out of range.
    """
    options = ToolOptions(
        timeout_seconds=timeout_seconds,
        idempotent=idempotent,
        max_attempts=max_attempts,
        task_queue=task_queue,
        local=local,
    )

    def wrap(function: Callable[..., Any]) -> Tool:
        return _make_tool(function, name, description, options)

    return wrap if fn is None else wrap(fn)


def as_tool(value: object) -> Tool:
    """A tool from a tool or a plain function.

    Raises:
        TypeError: It is neither.
    """
    if isinstance(value, Tool):
        return value
    if callable(value) and not isinstance(value, type):
        return tool(value)
    raise TypeError(f"a tool must be a function or made by @tool, not {value!r}")


def _make_tool(fn: object, name: str | None, description: str | None, options: ToolOptions) -> Tool:
    if not callable(fn) or isinstance(fn, type):
        raise TypeError(f"@tool needs a function, not {fn!r}")
    tool_name = name if name is not None else getattr(fn, "__name__", "")
    if not _NAME.fullmatch(tool_name):
        raise ValueError(
            f"tool name {tool_name!r} is not usable: letters, digits, _ and -, at most 64, not starting with a digit; "
            "pass name=..."
        )
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY, parameter.VAR_KEYWORD):
            raise TypeError(f"tool {tool_name!r}: parameter {parameter} cannot be filled from JSON; name each argument")
        if parameter.annotation is parameter.empty:
            raise TypeError(f"tool {tool_name!r}: parameter {parameter.name!r} has no type annotation")
    return Tool(fn=fn, name=tool_name, options=options, description_override=description)


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(inspect.unwrap(fn), include_extras=True)


def _arguments_model(tool: Tool) -> type[BaseModel]:
    hints = _hints(tool.fn)
    about = _docstring(tool.fn)[1]
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(tool.fn).parameters.items():
        if name == tool.context_parameter:
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], Field(default=default, description=about.get(name)))
    try:
        return create_model(tool.name, __config__=ConfigDict(extra="forbid"), **fields)
    except PydanticSchemaGenerationError as error:
        raise TypeError(f"tool {tool.name!r}: a parameter's type has no JSON form: {error.message}") from error


_ARGS_HEADER = re.compile(r"^(Args|Arguments|Parameters):\s*$")
_SECTION = re.compile(r"^[A-Z][A-Za-z ]*:\s*$")
_ARG_LINE = re.compile(r"^\s+\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")


def _docstring(fn: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The description, and what the Args section says of each parameter (Google style)."""
    intro: list[str] = []
    about: dict[str, str] = {}
    section, name = "", ""
    for line in (inspect.getdoc(fn) or "").splitlines():
        if _SECTION.match(line):
            section = "args" if _ARGS_HEADER.match(line) else "other"
        elif not section:
            intro.append(line)
        elif section == "args" and (match := _ARG_LINE.match(line)):
            name, text = match.groups()
            about[name] = text
        elif section == "args" and name and line.strip():
            about[name] = f"{about[name]} {line.strip()}"
    return "\n".join(intro).strip(), about


def _readable(error: ValidationError) -> str:
    lines = [f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in error.errors()]
    return "; ".join(lines[:8])


_ANY = TypeAdapter(Any)
_BLOCKS = TypeAdapter(tuple[TextBlock | MediaBlock, ...])


def content_of(value: object) -> ToolContent:
    """A tool's return value as content: text stays text, blocks stay blocks, all else becomes JSON text.

    Raises:
        pydantic_core.PydanticSerializationError: The value has no JSON form.
    """
    if isinstance(value, str):
        return well_formed(value)
    if value is None:
        return ""
    blocks = (value,) if isinstance(value, TextBlock | MediaBlock) else value
    if isinstance(blocks, list | tuple) and blocks and all(isinstance(v, TextBlock | MediaBlock) for v in blocks):
        return _BLOCKS.validate_json(_BLOCKS.dump_json(tuple(blocks)))
    return _ANY.dump_json(value).decode()


async def awaited(value: Any) -> Any:  # noqa: ANN401 - whatever it is
    """The value, awaited if it can be (AC-13)."""
    return value if value is None or not isinstance(value, Awaitable) else await value


async def in_thread(fn: Callable[[], Any], executor: Executor | None = None) -> Any:  # noqa: ANN401 - whatever it gives
    """The function in a thread; whatever it raises comes back as a value first, so that it cannot end the loop."""
    context = contextvars.copy_context()

    def body() -> tuple[Any, BaseException | None]:
        try:
            return context.run(fn), None
        except BaseException as error:
            return None, error

    value, error = await asyncio.get_running_loop().run_in_executor(executor, body)
    if error is not None:
        raise error
    return value


def error_result(call: ToolCall, text: str, status: ResultStatus = "failed") -> ToolResult:
    """A result that tells the model what went wrong."""
    return ToolResult(call_id=call.id, name=call.name, content=text, is_error=True, status=status)
