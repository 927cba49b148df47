"""Checks of what prebuilt middlewares are given: an error names the option, the value, and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from outlast.model import Model
from outlast.tools import Tool, as_tool

ToolNames: TypeAlias = Iterable[str | Tool | Callable[..., Any]]
"""Names, ``@tool`` objects or plain functions, mixed as you like."""


def tool_names(option: str, given: ToolNames) -> frozenset[str]:
    """The names, as a set.

    Raises:
        TypeError: A lone text, or something that names no tool.
    """
    if isinstance(given, str | Tool) or not isinstance(given, Iterable):
        raise TypeError(f"{option} must be a list of tool names, not {given!r:.80}")
    return frozenset(_name(option, item) for item in given)


def _name(option: str, item: object) -> str:
    if isinstance(item, str) and item:
        return item
    try:
        return as_tool(item).name
    except TypeError:
        raise TypeError(f"{option} holds {item!r:.80}; name a tool by its name or give the tool itself") from None


def check_text(option: str, value: object) -> None:
    """Raise TypeError unless it is a text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{option} must be a text that is not empty, not {value!r:.80}")


def check_whole(option: str, value: object, least: int) -> None:
    """Raise ValueError unless it is a whole number from ``least`` up."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{option} must be a whole number from {least} up, not {value!r:.80}")


def check_finite(option: str, value: object) -> None:
    """Raise ValueError unless it is a finite number from 0 up."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{option} must be a finite number from 0 up, not {value!r:.80}")


def check_choice(option: str, value: object, allowed: Sequence[str]) -> None:
    """Raise ValueError unless it is one of the allowed texts."""
    if value not in allowed:
        raise ValueError(f"{option} must be {' or '.join(map(repr, allowed))}, not {value!r:.80}")


def check_model(option: str, value: object) -> None:
    """Raise TypeError or ValueError unless it is a model string or a model object."""
    if not isinstance(value, str | Model):
        raise TypeError(f"{option} must be a text like 'openai:gpt-5' or a model object, not {value!r:.80}")
    if isinstance(value, str) and not value.strip():
        raise ValueError(f"{option} is empty; name a model, like 'openai:gpt-5'")
