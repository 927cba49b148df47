"""Reads one function's source: which hazards it uses, and which functions it calls. The engine of ``outlast check``."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from outlast.hazards import SORTED, STATE, instead_of

ACCEPTED = "# outlast: ok"
_UNKNOWN = object()
_ORDER_FREE = {"sorted", "sum", "min", "max", "any", "all", "len", "set", "frozenset"}
_ORDERED = {"list", "tuple", "enumerate", "iter", "map", "filter", "zip", "str", "repr", "next"}
_SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}


@dataclass(frozen=True)
class Use:
    """A hazard in the source."""

    line: int
    text: str
    instead: str


@dataclass(frozen=True)
class _Name:
    """Something that is known by its qualified name alone: a module imported inside the function."""

    path: str


@dataclass(frozen=True)
class _Instance:
    """A value of a known class, made inside the function."""

    kind: type


def read_function(function: FunctionType, owner: object = None) -> Iterator[Use | object]:
    """The hazards of a function, and the functions it uses (for the caller to read in turn).

    Args:
        function: With source; without, nothing is found.
        owner: What ``self`` is, for a method.
    """
    for node in _nodes(function):
        reader = _Reader(function, node, owner)
        reader.read()
        yield from reader.found


@cache
def _tree(file: str) -> ast.Module | None:
    linecache.checkcache(file)
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None


def _nodes(function: FunctionType) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]:
    """Where the function is in its file; several only for lambdas on one line."""
    code, tree = function.__code__, _tree(function.__code__.co_filename)
    found: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno:
            found.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            if first == code.co_firstlineno:
                found.append(node)
    return found


class _Reader(ast.NodeVisitor):
    def __init__(
        self, function: FunctionType, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, owner: object
    ) -> None:
        self.found: list[Use | object] = []
        self._node = node
        self._file = function.__code__.co_filename
        self._names = _namespace(function)
        self._free = set(function.__code__.co_freevars)
        self._owner = owner
        self._self = function.__code__.co_varnames[0] if owner is not None and function.__code__.co_argcount else None
        self._locals = _local_names(node)
        self._imports: dict[str, object] = {}
        self._sets: set[str] = set()
        self._excused: set[ast.AST] = set()

    def read(self) -> None:
        body = self._node.body if isinstance(self._node.body, list) else [self._node.body]
        for statement in body:
            for item in ast.walk(statement):
                if isinstance(item, ast.Import | ast.ImportFrom):
                    self._note_import(item)
        for _ in range(2):  # twice, for a set that is named after another
            self._sets |= {name for statement in body for name in self._set_names(statement)}
        for statement in body:
            self.visit(statement)

    def _note_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                path = alias.name if alias.asname else alias.name.partition(".")[0]
                self._imports[alias.asname or path] = sys.modules.get(path, _Name(path))
            elif not node.level and node.module:
                module = sys.modules.get(node.module)
                name = _Name(f"{node.module}.{alias.name}")
                self._imports[alias.asname or alias.name] = getattr(module, alias.name, name)

    def _set_names(self, statement: ast.stmt | ast.expr) -> Iterator[str]:
        for item in ast.walk(statement):
            value = getattr(item, "value", None)
            if isinstance(item, ast.Assign) and self._is_set(value):
                yield from (target.id for target in item.targets if isinstance(target, ast.Name))
            elif isinstance(item, ast.AnnAssign | ast.NamedExpr) and self._is_set(value):
                yield from [item.target.id] if isinstance(item.target, ast.Name) else []

    def _resolve(self, node: ast.expr) -> object:
        """What an expression is, as far as it can be known without running anything."""
        if isinstance(node, ast.Name):
            if node.id in self._imports:
                return self._imports[node.id]
            if node.id == self._self:
                return self._owner
            return _UNKNOWN if node.id in self._locals else self._names.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute):
            return _member(self._resolve(node.value), node.attr, self._owner)
        if isinstance(node, ast.Call):
            made = self._resolve(node.func)
            return _Instance(made) if isinstance(made, type) else _UNKNOWN
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            left = self._resolve(node.left)
            return left if _is_path(left) else _UNKNOWN
        return _UNKNOWN

    def visit_Name(self, node: ast.Name) -> None:
        self._use(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == self._self:
            self._report(node, ast.unparse(node) + " = ...", STATE)
            return
        if not self._use(node):
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        target = self._resolve(node.func)
        if "random.Random" in _qualified(target) and node.args:
            for argument in node.args:
                self.visit(argument)
            return  # seeded: the same on replay
        name = node.func.id if isinstance(node.func, ast.Name) and _is_builtin(target) else ""
        if name in _ORDER_FREE:
            self._excused |= set(node.args)
        takes = name in _ORDERED or (isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "fromkeys"))
        for argument in node.args if takes else ():
            self._iterates(argument)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not node.args:
            self._iterates(node.func.value)
        if self._use(node.func, call=True):
            for child in (*node.args, *node.keywords):
                self.visit(child)
        else:
            self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._iterates(node.iter)
        self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        self._iterates(node.value)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self._iterates(node.value)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        for generator in node.generators if node not in self._excused else ():
            self._iterates(generator.iter)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self._report(node, f"{ast.unparse(node)}", STATE)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        if set(node.names) & self._free:  # of a function around the hook; the hook's own variables are its own
            self._report(node, f"{ast.unparse(node)}", STATE)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None:
                self.visit(default)

    def _use(self, node: ast.expr, *, call: bool = False) -> bool:
        """Report a hazard, or hand out a function to read; True where there is nothing more to look at."""
        value = self._resolve(node) if isinstance(node, ast.Name | ast.Attribute) else _UNKNOWN
        if value is _UNKNOWN:
            return False
        for name in _qualified(value):
            instead = instead_of(name)
            if instead is not None:
                self._report(node, ast.unparse(node) + "()" * call, instead)
                return True
        if isinstance(value, FunctionType | MethodType):
            self.found.append(value)
        return not isinstance(node, ast.Attribute) or isinstance(value, ModuleType | type | FunctionType | MethodType)

    def _iterates(self, node: ast.expr) -> None:
        if self._is_set(node):
            self._report(node, f"the order of the set {ast.unparse(node)}", SORTED)

    def _is_set(self, node: object) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Name) and node.id in self._sets:
            return True
        if isinstance(node, ast.Name | ast.Attribute):
            return isinstance(self._resolve(node), set | frozenset)
        if isinstance(node, ast.Call):
            from_set = isinstance(node.func, ast.Attribute) and self._is_set(node.func.value)
            return self._resolve(node.func) in (set, frozenset) or (
                from_set and isinstance(node.func, ast.Attribute) and node.func.attr in _SET_METHODS
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
            return any(self._is_set(side) or _is_keys(side) for side in (node.left, node.right))
        return isinstance(node, ast.IfExp) and (self._is_set(node.body) or self._is_set(node.orelse))

    def _report(self, node: ast.expr | ast.stmt, text: str, instead: str) -> None:
        if ACCEPTED not in linecache.getline(self._file, node.lineno):
            self.found.append(Use(node.lineno, " ".join(text.split())[:100], instead))


def _namespace(function: FunctionType) -> Mapping[str, object]:
    names = {**vars(builtins), **function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            names[name] = _UNKNOWN
    return names


def _local_names(node: ast.AST) -> set[str]:
    """Parameters and whatever is assigned, in nested functions too."""
    names = {item.arg for item in ast.walk(node) if isinstance(item, ast.arg)}
    return names | {
        item.id for item in ast.walk(node) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)
    }


def _member(value: object, name: str, owner: object) -> object:
    """An attribute, without running code of the user's: no property is called."""
    if isinstance(value, _Name):
        return _Name(f"{value.path}.{name}")
    if isinstance(value, ModuleType):
        return getattr(value, name, _Name(f"{value.__name__}.{name}"))
    if isinstance(value, type):
        return getattr(value, name, _UNKNOWN)
    if isinstance(value, _Instance):
        return getattr(value.kind, name, _UNKNOWN) if issubclass(value.kind, PurePath) else _UNKNOWN
    if isinstance(value, PurePath):
        return getattr(type(value), name, _UNKNOWN)
    if value is owner and owner is not None:
        found = inspect.getattr_static(owner, name, _UNKNOWN)
        return MethodType(found, owner) if isinstance(found, FunctionType) else found
    return _UNKNOWN


def _is_path(value: object) -> bool:
    return isinstance(value, PurePath) or (isinstance(value, _Instance) and issubclass(value.kind, PurePath))


def _is_builtin(value: object) -> bool:
    return getattr(value, "__module__", "") == "builtins"


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def _qualified(value: object) -> tuple[str, ...]:
    """The names under which the table may know a value."""
    if isinstance(value, _Name):
        return (value.path,)
    if isinstance(value, ModuleType | _Instance):
        return ()
    if isinstance(value, MethodType | BuiltinFunctionType) and isinstance(getattr(value, "__self__", None), type):
        kind: Any = value.__self__
        return (f"{kind.__module__}.{kind.__qualname__}.{value.__name__}",)
    qualname: str | None = getattr(value, "__qualname__", None)
    if qualname is not None:
        of = getattr(value, "__objclass__", None) or type(getattr(value, "__self__", None))
        module = getattr(value, "__module__", None) or of.__module__
        return (f"{module}.{qualname}",)
    return (f"{type(value).__module__}.{type(value).__qualname__}",)
