"""``@side_effect``: functions that touch the outside world and are called from hooks like any other.

Inside a run the call becomes an activity; outside (in a unit test) the function runs directly.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

from pydantic_core import from_json, to_json

from outlast.messages import Json
from outlast.runtime import EffectCall, current_effects, current_runtime
from outlast.state import check_json
from outlast.tools import awaited, in_thread

P = ParamSpec("P")
R = TypeVar("R")

_LOCAL: dict[str, SideEffect[..., Any]] = {}


class SideEffect(Generic[P, R]):
    """A function that runs as an activity when a run calls it. Made by :func:`side_effect`."""

    def __init__(self, fn: Callable[P, R | Awaitable[R]], timeout_seconds: float, max_attempts: int) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.timeout_seconds = timeout_seconds
        self.max_attempts = max_attempts
        self.path = f"{fn.__module__}:{fn.__qualname__}"
        if "<locals>" in fn.__qualname__:  # cannot be imported by name; findable only in this process
            _LOCAL[self.path] = self

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it: as an activity inside a run, directly outside. Arguments and result are JSON values."""
        runtime = current_runtime.get()
        result: R
        if runtime is None:
            result = await awaited(self.fn(*args, **kwargs))
            return result
        check_json(list(args), f"arguments of {self.path}")
        check_json(dict(kwargs), f"arguments of {self.path}")
        command_id = current_effects.get()(self.path.rpartition(":")[2])
        call = EffectCall(command_id, self.path, args, kwargs, self.timeout_seconds, self.max_attempts)
        result = await runtime.run_effect(call)
        return result

    async def run(self, args: tuple[Json, ...], kwargs: dict[str, Json]) -> Json:
        """Run the function here and now, in a thread if it is synchronous; the worker's side of the activity."""
        if not inspect.iscoroutinefunction(self.fn):
            value = await awaited(await in_thread(lambda: self.fn(*args, **kwargs)))
        else:
            value = await awaited(self.fn(*args, **kwargs))
        return from_json(to_json(value))


@overload
def side_effect(fn: Callable[P, Awaitable[R]], /) -> SideEffect[P, R]: ...
@overload
def side_effect(fn: Callable[P, R], /) -> SideEffect[P, R]: ...
@overload
def side_effect(
    *, timeout_seconds: float = 60.0, max_attempts: int = 3
) -> Callable[[Callable[P, R | Awaitable[R]]], SideEffect[P, R]]: ...
def side_effect(
    fn: Callable[..., Any] | None = None, /, *, timeout_seconds: float = 60.0, max_attempts: int = 3
) -> Any:
    """Mark a function (sync or async) as touching the outside world; always await its call.

    It runs at least once: after a lost worker it is tried again, ``max_attempts`` times at most, so make it
    idempotent. An exception of its body is raised in the hook, not retried.

    Raises:
        ValueError: An option is out of range.
    """
    if timeout_seconds <= 0 or max_attempts < 1:
        raise ValueError("side_effect: timeout_seconds must be more than 0 and max_attempts at least 1")

    def wrap(function: Callable[P, R | Awaitable[R]]) -> SideEffect[P, R]:
        return SideEffect(function, timeout_seconds, max_attempts)

    return wrap if fn is None else wrap(fn)


def find_effect(path: str) -> SideEffect[..., Any]:
    """The side effect at ``module:qualname``.

    Raises:
        LookupError: There is none on this worker; the message says what to check.
    """
    if path in _LOCAL:
        return _LOCAL[path]
    module, _, qualname = path.partition(":")
    try:
        found = functools.reduce(getattr, qualname.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise LookupError(
            f"side effect {path!r} is not on this worker ({error}); deploy the module that defines it"
        ) from error
    if not isinstance(found, SideEffect):
        raise LookupError(f"{path!r} is not decorated with @side_effect")
    return found
