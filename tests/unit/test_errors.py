"""AC-25 to AC-28 and AC-61: verdicts, and what an error's text may carry."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import AgentError, HitlInterrupt, get_retryable, hitl_key, stamp_retryable
from outlast.errors import (
    ModelError,
    OutlastError,
    RateLimited,
    ToolError,
    ToolRejection,
    clean_text,
    is_control,
    matches,
)


class Slotted(Exception):
    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("frozen")


@pytest.mark.parametrize("verdict", [True, False])
def test_a_stamp_marks_any_error_and_changes_nothing_that_can_be_seen(verdict: bool) -> None:
    """AC-25."""
    error = ValueError("boom", 3)
    assert stamp_retryable(error, verdict) is error
    assert (type(error), error.args, str(error), repr(error)) == (
        ValueError,
        ("boom", 3),
        "('boom', 3)",
        "ValueError('boom', 3)",
    )
    assert get_retryable(error) is verdict


@pytest.mark.parametrize("thing", [None, "text", 3, object(), Slotted("x")])
def test_what_cannot_carry_a_stamp_is_returned_untouched(thing: Any) -> None:
    """AC-25."""
    assert stamp_retryable(thing, True) is thing
    assert get_retryable(thing) is None


def test_an_agent_error_maps_to_its_flag_and_a_stamp_wins_over_it() -> None:
    """AC-26."""
    error = AgentError("BUDGET_EXCEEDED", "enough")
    assert get_retryable(error) is False
    assert get_retryable(AgentError("X", "y", retryable=True)) is True
    assert get_retryable(stamp_retryable(error, True)) is True


def test_provider_errors_bring_their_verdict_and_are_no_agent_errors() -> None:
    """AC-34."""
    assert get_retryable(RateLimited("slow down")) is True
    assert get_retryable(ModelError("?")) is None
    assert not isinstance(RateLimited("x"), AgentError)


def test_control_errors_are_what_no_retry_may_touch() -> None:
    """AC-34, AC-36."""
    import asyncio

    for error in (AgentError("X", "y"), HitlInterrupt("t", {}), ToolRejection("no"), asyncio.CancelledError()):
        assert is_control(error)
    assert not is_control(RateLimited("x"))
    assert not is_control(ToolError("x"))


@pytest.mark.parametrize(
    ("tool", "args", "key"),
    [
        ("publish", {"id": 1, "title": "é"}, 'publish:{"id": 1, "title": "\\u00e9"}'),
        ("x", {}, "x:{}"),
        ("x", {"a": (1, 2)}, 'x:{"a": [1, 2]}'),
        ("x", {"b": 1, "a": 2}, 'x:{"b": 1, "a": 2}'),
        ("x", {"n": float("nan")}, 'x:{"n": NaN}'),
    ],
)
def test_the_key_of_an_interrupt_is_pinned(tool: str, args: dict[str, Any], key: str) -> None:
    """AC-60, AC-61."""
    interrupt = HitlInterrupt(tool, args)
    assert hitl_key(tool, args) == interrupt.interrupt_id == key
    assert (interrupt.tool, interrupt.args) == (tool, args)


def test_tuple_keys_have_no_json_form() -> None:
    """AC-61."""
    with pytest.raises(TypeError):
        hitl_key("x", {(1, 2): 3})  # type: ignore[dict-item]


def test_everything_the_framework_raises_has_one_root() -> None:
    import outlast.errors as module

    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    assert all(issubclass(kind, OutlastError) for kind in kinds)


def test_a_text_for_a_payload_has_no_surrogate_no_nul_and_an_end() -> None:
    dirty = "a\ud800b\0c" + "x" * 10_000
    clean = clean_text(dirty)
    assert len(clean) <= 4000
    assert clean.encode()
    assert "\0" not in clean
    assert clean.startswith("a?b")


def test_classes_are_matched_by_name_once_an_error_has_crossed_an_activity() -> None:
    error = ToolError(
        "x", error_classes=("builtins.ConnectionResetError", "builtins.ConnectionError", "builtins.OSError")
    )
    assert matches(error, [OSError])
    assert matches(ValueError("x"), [ValueError])
    assert not matches(error, [ValueError])
