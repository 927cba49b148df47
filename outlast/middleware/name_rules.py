"""Rules on tool names: exact texts and regular expressions whose work on a name is bounded before they are used."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MAX_NAME = 64
"""No provider takes a longer tool name."""

MAX_PATHS = 1_000_000
"""Most ways in which a pattern may try to match a name of that length: some milliseconds."""

_parser: Any = importlib.import_module("re._parser")  # the standard library's own; public only under a deprecated name


@dataclass(frozen=True)
class NameRules:
    """Exact names and patterns, made by :func:`name_rules`."""

    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]

    def match(self, name: str) -> bool:
        """Whether a rule covers this name: a whole name, or a pattern found anywhere in it."""
        return name in self.names or any(pattern.search(name) is not None for pattern in self.patterns)


def name_rules(option: str, rules: Iterable[object]) -> NameRules:
    """The rules, copied: what the caller does with its list or its patterns later changes nothing (AC-110).

    Raises:
        TypeError: A rule is neither a text nor a compiled pattern of texts; ``option`` is what the message names.
        ValueError: A rule is empty, or a pattern could take too long on a hostile name.
    """
    if isinstance(rules, str | bytes | re.Pattern) or not isinstance(rules, Iterable):
        raise TypeError(f"{option} must be a list of names and compiled patterns, not {rules!r:.80}")
    names: set[str] = set()
    patterns: dict[re.Pattern[str], None] = {}
    for rule in rules:
        if isinstance(rule, str) and rule:
            names.add(str.__str__(rule))  # the text itself, whatever a subclass makes of equality
        elif isinstance(rule, re.Pattern) and isinstance(rule.pattern, str):
            patterns[_bounded(option, str.__str__(rule.pattern), rule.flags & ~re.DEBUG)] = None
        else:
            raise (ValueError if rule == "" else TypeError)(
                f"{option} holds {rule!r:.80}; a rule is a tool's name or a compiled pattern, re.compile('...')"
            )
    return NameRules(frozenset(names), tuple(patterns))


@lru_cache(maxsize=10_000)
def _bounded(option: str, pattern: str, flags: int) -> re.Pattern[str]:
    """The pattern compiled anew."""
    choices, loops = _paths(_parser.parse(pattern, flags))
    if choices * math.comb(MAX_NAME + loops + 1, loops + 1) > MAX_PATHS:
        raise ValueError(
            f"{option}: the pattern {pattern!r:.120} could take too long on a hostile name. Do not repeat a group that "
            "repeats or branches itself, and use at most three * or + in a row; or list the names"
        )
    return re.compile(pattern, flags)


def _paths(tree: Any) -> tuple[int, int]:  # noqa: ANN401 - the standard library's parse tree
    """An upper bound on the ways to match: fixed choices, and loops over one character that share the name's length."""
    choices, loops = 1, 0
    for code, value in tree:
        match code.name:
            case "BRANCH":
                inner = [_paths(branch) for branch in value[1]]
                found = sum(ways for ways, _ in inner), max(count for _, count in inner)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                found = _repeated(int(value[0]), min(int(value[1]), MAX_NAME), *_paths(value[2]))
            case "SUBPATTERN":
                found = _paths(value[-1])
            case "ATOMIC_GROUP":
                found = _paths(value)
            case "ASSERT" | "ASSERT_NOT":
                found = _paths(value[1])
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "AT" | "FAILURE":
                continue
            case _:  # back references and conditions: not worth their cost in a rule on names
                found = MAX_PATHS + 1, 0
        choices, loops = min(choices * found[0], MAX_PATHS + 1), loops + found[1]
    return choices, loops


def _repeated(least: int, most: int, choices: int, loops: int) -> tuple[int, int]:
    if choices == 1 and loops == 0:
        return (1, 0) if most <= least else (2, 0) if most - least == 1 else (1, 1)
    ways = min(choices * (MAX_NAME + 1) ** loops + 1, MAX_PATHS + 1)
    return int(min(ways**most, MAX_PATHS + 1)), 0
