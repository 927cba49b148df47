"""Packages whose names are imported when they are first asked for, so that ``import outlast`` stays quick."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping


class LazyPackage(types.ModuleType):
    """A package on which a name is always the value that its module holds, never a submodule of the same name."""

    _homes: Mapping[str, str] = {}

    def __getattr__(self, name: str) -> object:
        if name not in self._homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(f"{self.__name__}.{self._homes[name]}"), name)
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds a submodule to its package once it is loaded.
        if name in self._homes and isinstance(value, types.ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


def make_lazy(package: str, homes: Mapping[str, str]) -> None:
    """Turn an imported package into a lazy one: ``homes`` maps each name to the submodule that holds it."""
    module = sys.modules[package]
    module.__class__ = LazyPackage
    module.__dict__["_homes"] = homes
