"""Agents' modules that cannot be imported by their name are found by their file.

pytest's importlib mode and scripts that load a file by its path make such modules; the sandbox imports them again.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_files: dict[str, str] = {}


class _Finder(MetaPathFinder):
    """The last one that Python asks, so that it only finds what nobody else does."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _files:
            return importlib.util.spec_from_file_location(name, _files[name])
        if any(known.startswith(f"{name}.") for known in _files):
            package = ModuleSpec(name, None, is_package=True)  # a folder without a file of its own
            package.submodule_search_locations = []
            return package
        return None


_finder = _Finder()


def remember_file(module: str, file: str) -> None:
    """Let this module be imported from this file where its name leads nowhere."""
    _files[module] = file
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)
