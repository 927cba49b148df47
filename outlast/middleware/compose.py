"""Hook order, decided here and nowhere else.

before_* in registration order; wrap_model and around_tool nested with the first registered outermost;
after_* in reverse order. Each helper works without an agent: give it middlewares, a value and a context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel

from outlast.errors import HookFailure, ModelError, ToolRejection, clean_text
from outlast.messages import Json
from outlast.middleware.contract import HookContext, ModelNext, ToolNext, hook_of, name_of
from outlast.model import Completion, ModelRequest, completion_fault, request_fault
from outlast.runtime import current_scope, scoped
from outlast.state import check_json
from outlast.tools import ToolCall, ToolResult, awaited

V = TypeVar("V", bound=BaseModel)
_WHERE = "__outlast_where__"


async def run_before_model(middlewares: Sequence[object], request: ModelRequest, ctx: HookContext) -> ModelRequest:
    """The request after every ``before_model``, in registration order; each sees the previous one's result (AC-4)."""
    for middleware, hook in _having("before_model", middlewares):
        request = await _step("before_model", middleware, hook, request, ctx, ModelRequest)
    return request


def compose_model_call(middlewares: Sequence[object], call: ModelNext, ctx: HookContext) -> ModelNext:
    """``call`` inside every ``wrap_model``; the first registered is outermost (AC-6)."""
    nested: ModelNext = _nest("wrap_model", middlewares, call, ctx, Completion)
    return nested


async def run_after_model(middlewares: Sequence[object], completion: Completion, ctx: HookContext) -> Completion:
    """The completion after every ``after_model``, in reverse registration order (AC-7)."""
    for middleware, hook in _having("after_model", reversed(middlewares)):
        completion = await _step("after_model", middleware, hook, completion, ctx, Completion)
    return completion


async def run_before_tool(middlewares: Sequence[object], call: ToolCall, ctx: HookContext) -> ToolCall:
    """The call after every ``before_tool``, in registration order; a hook that raises ends the chain (AC-8, AC-9)."""
    for middleware, hook in _having("before_tool", middlewares):
        call = await _step("before_tool", middleware, hook, call, ctx, ToolCall)
    return call


def compose_tool_call(middlewares: Sequence[object], call: ToolNext, ctx: HookContext) -> ToolNext:
    """``call`` inside every ``around_tool``; the first registered is outermost (AC-10)."""
    nested: ToolNext = _nest("around_tool", middlewares, call, ctx, ToolResult)
    return nested


async def run_after_tool(middlewares: Sequence[object], result: ToolResult, ctx: HookContext) -> ToolResult:
    """The result after every ``after_tool``, in reverse registration order (AC-11).

    One that raises ToolRejection withholds the result; the hooks after it see the refusal.
    """
    for middleware, hook in _having("after_tool", reversed(middlewares)):
        try:
            result = await _step("after_tool", middleware, hook, result, ctx, ToolResult)
        except ToolRejection as refused:  # what ran has run; the model reads the refusal instead of the result
            result = result.replace(content=clean_text(refused.message), is_error=True)
    return result


def _having(name: str, middlewares: Iterable[object]) -> Iterator[tuple[object, Callable[..., Any]]]:
    """The middlewares that have this hook, with it."""
    for middleware in middlewares:
        hook = hook_of(middleware, name)
        if hook is not None:
            yield middleware, hook


async def _step(
    name: str, middleware: object, hook: Callable[..., Any], value: V, ctx: HookContext, kind: type[V]
) -> V:
    """One before/after hook: None means unchanged; anything but the value's own kind is refused."""
    given = _given(value)
    changed = await guarded(name, middleware, hook, given, ctx)
    return value if changed is None or changed is value else _checked(changed, kind, name, middleware)


def _given(value: Any) -> Any:  # noqa: ANN401 - the value itself, or a call with arguments of its own
    """What a hook gets: arguments of a call are its to change, and change nothing."""
    return value.model_copy(update={"args": _copied(value.args)}) if type(value) is ToolCall else value


def _copied(value: Json) -> Json:
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if type(value) is list else value


def _nest(name: str, middlewares: Sequence[object], call: Any, ctx: HookContext, kind: type[V]) -> Any:  # noqa: ANN401
    for middleware, hook in _having(name, reversed(middlewares)):
        call = _layer(name, middleware, hook, call, ctx, kind)
    return call


def _layer(
    name: str,
    middleware: object,
    hook: Callable[..., Any],
    call_next: Callable[[Any], Any],
    ctx: HookContext,
    kind: type[V],
) -> Callable[[Any], Any]:
    scope = current_scope.get()

    async def outer(value: Any) -> V:  # noqa: ANN401 - the request or the call
        answers: list[V] = []

        async def inner(value: Any) -> V:  # noqa: ANN401 - the request or the call
            with scoped(scope):  # what runs inside is not this hook's command
                answers.append(await call_next(value))
            return answers[-1]

        given = _given(value)
        found = await guarded(name, middleware, hook, given, inner, ctx)
        return next((answer for answer in answers if answer is found), None) or _checked(found, kind, name, middleware)

    return outer


async def guarded(name: str, middleware: object, hook: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
    """Call one hook, sync or async, so that nothing it raises can hurt the worker.

    Exceptions pass with a note of where they came from. What is not an ``Exception`` (``SystemExit``,
    ``KeyboardInterrupt``, ``GeneratorExit``, own classes) becomes a :class:`HookFailure` in this very frame:
    in workflow code it would kill the worker or leave a run that nobody can see (limits T4). Cancellation and
    the runtime's own signals pass.
    """
    ctx: HookContext = args[-1]
    outer, task = current_scope.get(), _current_task()
    own = f"{name}.{name_of(middleware)}"
    with scoped(own if outer == "run" else f"{outer}.{own}"):
        try:
            return await awaited(hook(*args))
        except (StopIteration, StopAsyncIteration) as error:  # Python turns these into another error on the way out
            raise HookFailure(f"{name} of {name_of(middleware)!r}", describe(error)) from None
        except Exception as error:
            note_where(error, f"{name} of {name_of(middleware)!r}")
            raise
        except BaseException as error:
            if _is_control_flow(error, ctx):
                raise
            if isinstance(error, GeneratorExit) and _current_task() is not task:
                raise  # not the hook's: its stopped worker's memory is being collected
            raise HookFailure(f"{name} of {name_of(middleware)!r}", describe(error)) from None


def _current_task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _is_control_flow(error: BaseException, ctx: object) -> bool:
    """Whether somebody else is behind this: the runtime, or whoever cancelled the task the hook runs in."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    runtime = getattr(ctx, "_runtime", None)
    return runtime is not None and isinstance(error, runtime.control_errors)


def note_where(error: BaseException, where: str) -> None:
    """Remember the first hook that an error came out of."""
    if _noted(error) is None and not issubclass(type(error), HookFailure | ModelError):  # these tell by themselves
        _note(error, where)


def where_of(error: BaseException, otherwise: str) -> str:
    """The hook an error came out of, or the given place."""
    if isinstance(error, HookFailure):
        return error.where
    return _noted(error) or otherwise


def forget_where(error: BaseException) -> None:
    """The error has been dealt with; where the same object is raised next is told anew."""
    if _noted(error) is not None:
        _note(error, None)


def _note(error: BaseException, where: str | None) -> None:
    object.__setattr__(error, _WHERE, where)  # past whatever the error's own class does with attributes


def _noted(error: BaseException) -> str | None:
    try:
        noted = object.__getattribute__(error, _WHERE)
    except AttributeError:
        return None
    return noted if isinstance(noted, str) else None


def describe(error: BaseException, limit: int = 2000) -> str:
    """``ClassName: message``, whatever the error's own ``__str__`` does."""
    if type(error).__name__ == "RestrictedWorkflowAccessError":  # the sandbox's; its own advice is for workflow authors
        return (
            f"RestrictedWorkflowAccessError: {getattr(error, 'qualified_name', 'something')} would not replay. "
            "Hooks use ctx.now(), ctx.random, ctx.uuid(), ctx.sleep(), or call a @side_effect function"
        )
    text = clean_text(error, 2_000_000)
    return clean_text(f"{type(error).__name__}: {text}" if text else type(error).__name__, limit)


def _checked(value: object, kind: type[V], name: str, middleware: object) -> V:
    """What a hook returned, as it will be after a continue-as-new; what would not survive one is refused here."""
    where = f"{name} of {name_of(middleware)!r}"
    if not isinstance(value, kind):
        nothing = "" if name in ("wrap_model", "around_tool") else " or None"
        raise HookFailure(where, f"TypeError: it must return {kind.__name__}{nothing}, not {type(value).__name__}")
    try:
        return _kept(value, kind)
    except (ValueError, TypeError, AttributeError) as error:
        raise HookFailure(where, f"the {kind.__name__} it returned cannot be used: {describe(error)}") from None


def _kept(value: V, kind: type[V]) -> V:
    """The value as its JSON reads; ``model_copy(update=...)``, which hooks may use, checks nothing."""
    if isinstance(value, ModelRequest):  # is sent, not kept
        fault = request_fault(value)
    else:
        if isinstance(value, ToolCall):
            check_json(value.args, "args")
        value = kind.model_validate_json(value.model_dump_json(warnings=False))
        fault = completion_fault(value) if isinstance(value, Completion) else None
    if fault is not None:
        raise ValueError(fault)
    return value
