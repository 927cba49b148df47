"""What survives, and what is refused before it could not (AC-15, T6)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.state import InvocationState, RunState, check_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_every_json_value_survives_the_trip(values: dict[str, Any]) -> None:
    state = InvocationState(values)
    assert json.loads(json.dumps(dict(state))) == values


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ((1, 2), r"\['k'\].*use a list"),
        ({1, 2}, r"\['k'\].*use a sorted list"),
        ({"a": [{"b": b"x"}]}, r"\['k'\]\['a'\]\[0\]\['b'\].*bytes"),
        ({1: "x"}, r"\['k'\]: key 1 is int"),
        (datetime(2026, 1, 1), r"isoformat"),
        (float("nan"), r"float is not a JSON value"),
        (object(), r"object is not a JSON value"),
    ],
)
def test_a_value_that_is_not_json_is_refused_at_its_place(value: Any, place: str) -> None:
    writes: list[Callable[[InvocationState], object]] = [
        lambda s: s.__setitem__("k", value),
        lambda s: s.update(k=value),
        lambda s: s.setdefault("k", value),
        lambda s: s.__ior__({"k": value}),
    ]
    for write in writes:
        state = InvocationState({"old": 1})
        with pytest.raises(TypeError, match=place):
            write(state)
        assert state == {"old": 1}


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1},
        (1,),
        {1: 2},
        float("nan"),
        float("inf"),
        "\ud800",
        {"\ud800": 1},
        2**20_000,
        b"x",
        datetime(2026, 1, 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_change_deep_inside_is_found_at_the_next_check_and_taken_back(value: Any) -> None:
    """T6: the state can always be written, whatever a hook did to it."""
    state = InvocationState({"list": [1]})
    state["list"].append(value)
    with pytest.raises(TypeError, match=r"invocation_state\['list'\]\[1\]"):
        state.check()
    assert state == {"list": [1]}
    state.check()


def test_a_cycle_is_found_and_taken_back() -> None:
    state = InvocationState({"list": []})
    state["list"].append(state["list"])
    with pytest.raises(TypeError, match="nested more than 100 deep"):
        state.check()
    assert state == {"list": []}


@pytest.mark.parametrize("value", ["\ud800", {"a\udfff": 1}, 2**20_000], ids=["text", "key", "number"])
def test_what_some_reader_of_json_refuses_is_refused_when_it_is_written(value: Any) -> None:
    with pytest.raises(TypeError, match="invocation_state"):
        InvocationState({"k": value})


def test_a_bottomless_value_is_refused_not_followed() -> None:
    deep: list[Any] = []
    deep.append(deep)
    with pytest.raises(TypeError, match="nested"):
        check_json(deep, "x")


def test_undo_goes_back_to_the_last_check_in_the_same_dict_object() -> None:
    state = same = InvocationState({"a": 1})
    state["b"] = 2
    state.check()
    state["c"] = 3
    state.undo()
    assert same is state
    assert state == {"a": 1, "b": 2}


def test_a_command_id_is_new_once_and_the_memory_is_bounded() -> None:
    state = RunState(agent="a")
    assert state.first_time("x")
    assert not state.first_time("x")
    assert state.first_time("")
    assert state.first_time("")
    for number in range(5000):
        state.first_time(str(number))
    assert len(state.seen_ids) == 2000


def test_events_are_numbered_without_gaps_over_a_handover() -> None:
    state = RunState(agent="a")
    when = datetime(2026, 1, 1)
    for _ in range(150):
        state.events.add("custom", when, 1, {})
    state.pack()
    again = RunState.model_validate_json(state.model_dump_json(exclude_none=True))
    again.events.add("custom", when, 1, {})
    assert [event.seq for event in again.events.after(50)] == list(range(51, 152))


def test_the_events_that_are_carried_and_shown_at_once_are_bounded_in_bytes_too() -> None:
    state = RunState(agent="a")
    for _ in range(10):
        state.events.add("custom", datetime(2026, 1, 1), 1, {"text": "x" * 60_000})
    state.pack()
    assert [event.seq for event in state.event_tail] == [8, 9, 10]
    assert [event.seq for event in state.events.after(4, max_bytes=130_000)] == [5, 6]
    assert [event.seq for event in state.events.after(4, max_bytes=10)] == [5]
    assert state.events.after(10, max_bytes=10) == []
