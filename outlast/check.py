"""``outlast check``: reads the source of every hook and names what would not replay.

The sandbox catches a clock or a random number when a run meets it. This finds it before, and also what the sandbox does
not see: the order of sets, ``id()``, files read through libraries. A line that ends in ``# outlast: ok`` is accepted.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MethodType

from outlast.agent import Agent
from outlast.effects import SideEffect
from outlast.middleware.contract import HOOKS, hook_of, name_of
from outlast.registry import AgentRegistry
from outlast.source import Use, read_function
from outlast.tools import Tool

_OURS = Path(__file__).parent
_DEPTH = 12


@dataclass(frozen=True, order=True)
class Finding:
    """One use, in one hook, of something that would not be the same on replay.

    Attributes:
        agent: As runs address it.
        hook: ``before_tool of 'audit'``, and the functions on the way: ``-> helper``.
        uses: The expression.
        instead: What to do instead.
    """

    file: str
    line: int
    agent: str
    hook: str
    uses: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.uses} in {self.hook}, agent {self.agent!r}: {self.instead}"


def check_agents(agents: Iterable[Agent]) -> list[Finding]:
    """Everything found in the hooks of these agents and their sub-agents, by file and line.

    Hooks that outlast provides are not read, but the functions that were given to them are.
    """
    found: dict[tuple[str, int, str], Finding] = {}
    for name, agent in AgentRegistry(agents).everyone():
        for middleware in agent.middleware:
            for hook_name in HOOKS:
                hook = hook_of(middleware, hook_name)
                where = f"{hook_name} of {name_of(middleware)!r}"
                for finding in _findings(name, where, hook) if hook is not None else ():
                    found.setdefault((finding.file, finding.line, finding.uses), finding)
    return sorted(found.values())


def _findings(agent: str, where: str, hook: object) -> Iterator[Finding]:
    seen: set[tuple[object, int]] = set()
    waiting = [(function, owner, where) for function, owner in _own_functions(hook)]
    while waiting:
        function, owner, path = waiting.pop(0)
        key = (function.__code__, id(owner))
        if key in seen or path.count("->") > _DEPTH:
            continue
        seen.add(key)
        file = shown_path(function.__code__.co_filename)
        for item in read_function(function, owner):
            if isinstance(item, Use):
                yield Finding(file, item.line, agent, path, item.text, item.instead)
            else:
                waiting += [(called, its, f"{path} -> {called.__name__}") for called, its in _own_functions(item)]


def _own_functions(value: object, depth: int = 0) -> list[tuple[FunctionType, object]]:
    """The user's functions that a callable runs, each with the object it is bound to."""
    owner: object = None
    if isinstance(value, functools.partial):
        return [found for item in (value.func, *value.args) for found in _own_functions(item, depth)]
    if isinstance(value, SideEffect | Tool | Agent | type):
        return []
    if isinstance(value, MethodType):
        owner, value = value.__self__, value.__func__
    if not isinstance(value, FunctionType):
        method = inspect.getattr_static(type(value), "__call__", None)
        if not isinstance(method, FunctionType):
            return []
        value, owner = method, value
    wrapped = inspect.unwrap(value)
    if wrapped is not value and isinstance(wrapped, FunctionType):
        return [*_own_functions(wrapped, depth), *([(value, owner)] if _is_users(value) else [])]
    if _is_users(value):
        return [(value, owner)]
    return _given(value, owner, depth) if _is_ours(value) and depth < 3 else []


def _given(function: FunctionType, owner: object, depth: int) -> list[tuple[FunctionType, object]]:
    """The user's functions that one of our own hooks was given: in its closure, or in its object."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    held = list(vars(owner).values()) if hasattr(owner, "__dict__") else []
    return [found for item in _flat([*cells, *held]) for found in _own_functions(item, depth + 1)]


def _is_filled(cell: object) -> bool:
    try:
        _ = cell.cell_contents  # type: ignore[attr-defined] # a closure's cell
    except ValueError:
        return False
    return True


def _flat(values: Iterable[object], depth: int = 0) -> Iterator[object]:
    for value in values:
        if isinstance(value, Mapping) and depth < 3:
            yield from _flat(value.values(), depth + 1)
        elif isinstance(value, list | tuple) and depth < 3:
            yield from _flat(value, depth + 1)
        elif callable(value):
            yield value


def _is_ours(function: FunctionType) -> bool:
    return Path(function.__code__.co_filename).is_relative_to(_OURS)


def _is_users(function: FunctionType) -> bool:
    """Whether a function is the project's own: not ours, not the standard library's, not an installed package's."""
    file = Path(function.__code__.co_filename)
    if not file.is_file() or _is_ours(function):
        return False
    return "site-packages" not in file.parts and not file.is_relative_to(Path(inspect.__file__).parent)


def shown_path(file: str) -> str:
    """The file as people write it: relative to where they are."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
