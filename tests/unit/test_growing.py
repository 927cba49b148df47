"""What is worked out of a growing conversation: the same as anew, with work that does not grow."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outlast import Agent, AgentOptions, tool
from outlast.growing import MANY, grown, keep_growing
from outlast.middleware import (
    ClearToolUsesEdit,
    context_editing_middleware,
    human_in_the_loop,
    model_fallback,
    model_retry,
    pii_redact,
    policy_filter,
    summarization_middleware,
    todo_list,
    tool_call_limit,
    tool_retry,
)
from outlast.model import ModelRequest
from outlast.testing import MemoryRuntime, ScriptedModel, call
from outlast.testing.scripted import Reply, text

STEPS = 60


class Joined:
    """A fold that writes down what it was given."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def more(self, before: str, items: Sequence[int]) -> str:
        self.seen += items
        if -1 in items:
            raise ValueError("no")
        return before + "".join(map(str, items))

    def __call__(self, items: Sequence[int], key: str = "joined") -> str:
        return grown(key, items, "", self.more)


def in_a_run(function: Any, *args: Any) -> Any:
    def body() -> Any:
        keep_growing()
        return function(*args)

    return copy_context().run(body)


@given(st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=12))
def test_lists_in_any_order_give_what_they_give_alone(lists: list[list[int]]) -> None:
    joined = Joined()
    assert in_a_run(lambda: [joined(items) for items in lists]) == ["".join(map(str, items)) for items in lists]


def test_a_list_that_grew_is_looked_at_where_it_is_new() -> None:
    joined = Joined()
    assert in_a_run(lambda: [joined([1, 2]), joined([7]), joined([1, 2, 3]), joined([1, 2, 3])])[-1] == "123"
    assert joined.seen == [1, 2, 7, 3]


def test_what_failed_is_not_remembered() -> None:
    joined = Joined()

    def twice() -> str:
        for _ in range(2):
            try:
                joined([1, -1])
            except ValueError:
                continue
            raise AssertionError("it has to fail each time")
        return joined([1, 2])

    assert in_a_run(twice) == "12"
    assert joined.seen == [1, -1, 1, -1, 1, 2]


def test_functions_are_kept_apart_and_not_without_end() -> None:
    joined = Joined()
    in_a_run(lambda: [joined([1], str(number)) for number in [*range(MANY + 1), 0, MANY]])
    assert len(joined.seen) == MANY + 2  # the oldest was forgotten, the newest was not


def test_outside_a_run_nothing_is_kept() -> None:
    joined = Joined()
    assert [joined([1]), joined([1, 2])] == ["1", "12"]
    assert joined.seen == [1, 1, 2]


@tool
def look(n: int) -> str:
    """Look."""
    return f"saw {n} for bob@example.com"


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many functions of middlewares and of token counting are entered: a measure of work that no load changes."""
    entered = [0]

    def profile(frame: FrameType, event: str, _arg: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and ("/outlast/middleware/" in name or name.endswith("/outlast/tokens.py")):
            entered[0] += 1

    sys.setprofile(profile)
    try:
        yield entered
    finally:
        sys.setprofile(None)


async def test_a_step_with_ten_middlewares_takes_as_much_work_late_in_a_run_as_early() -> None:
    per_step: list[int] = []

    def turn(request: ModelRequest) -> Reply:
        per_step.append(entered[0])
        return call("look", n=len(per_step)) if len(per_step) < STEPS else text("done")

    model = ScriptedModel([turn] * STEPS)
    middleware = [
        pii_redact("email"),
        policy_filter(deny=["drop"]),
        tool_call_limit(run_limit=1000),
        human_in_the_loop({"publish": True}),
        tool_retry(),
        model_fallback("openai:x"),
        model_retry(),
        summarization_middleware(model, 1_000_000),
        context_editing_middleware([ClearToolUsesEdit(700)]),  # strips again and again
        todo_list(),
    ]
    agent = Agent(AgentOptions(name="a", model=model, tools=[look], middleware=middleware))
    with counted() as entered:
        result = await MemoryRuntime(agent, "go").result()
    assert result.output == "done"
    spent = [after - before for before, after in itertools.pairwise(per_step)]
    assert sorted(spent[-20:])[10] <= 1.1 * sorted(spent[5:25])[10], spent
