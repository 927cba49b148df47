"""Tools: schema from signature and docstring, arguments checked, results made plain."""

from __future__ import annotations

import asyncio
import threading
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from outlast import AgentError, HitlInterrupt, ToolContext, ToolRejection, tool
from outlast.activities.tools import run_tool
from outlast.errors import ToolError, get_retryable, stamp_retryable
from outlast.messages import image
from outlast.tools import ToolResult


class Address(BaseModel):
    """Where."""

    city: str
    zip: str = ""


@tool
def ship(
    order: Annotated[str, Field(pattern="^A-")],
    to: Address,
    when: date,
    context: ToolContext,
    speed: Literal["slow", "fast"] = "slow",
) -> dict[str, Any]:
    """Ship an order.

    It goes out on the day.

    Args:
        order: The order's id,
            which begins with A.
        to: Where it goes.

    Returns:
        What was done.
    """
    return {"order": order, "city": to.city, "when": when.isoformat(), "speed": speed, "key": context.idempotency_key}


CONTEXT = ToolContext(run_id="r", call_id="c", idempotency_key="k")


def test_the_schema_comes_from_the_signature_and_the_docstring() -> None:
    spec = ship.spec
    assert (spec.name, spec.description) == ("ship", "Ship an order.\n\nIt goes out on the day.")
    properties = spec.parameters["properties"]
    assert properties["order"]["description"] == "The order's id, which begins with A."
    assert properties["order"]["pattern"] == "^A-"
    assert properties["when"]["format"] == "date"
    assert properties["speed"]["enum"] == ["slow", "fast"]
    assert "context" not in properties
    assert spec.parameters["required"] == ["order", "to", "when"]
    assert spec.parameters["additionalProperties"] is False


async def test_arguments_are_converted_and_the_context_is_filled_in() -> None:
    args = {"order": "A-1", "to": {"city": "Bonn"}, "when": "2026-12-01"}
    result = await run_tool(ship, args, CONTEXT)
    assert result.text == '{"order":"A-1","city":"Bonn","when":"2026-12-01","speed":"slow","key":"k"}'


def test_what_does_not_fit_is_told_in_words_a_model_can_act_on() -> None:
    fault = ship.fault({"order": "B-1", "to": {}, "when": "soon"})
    assert fault is not None
    assert "order: String should match pattern" in fault
    assert "to.city: Field required" in fault


async def test_results_are_made_plain() -> None:
    async def value_of(value: Any) -> Any:
        @tool
        async def give() -> Any:
            """Give."""
            return value

        return (await run_tool(give, {}, CONTEXT)).content

    assert await value_of("text") == "text"
    assert await value_of(None) == ""
    assert await value_of(Address(city="Bonn")) == '{"city":"Bonn","zip":""}'
    assert await value_of([1, {"a": date(2026, 1, 1)}]) == '[1,{"a":"2026-01-01"}]'
    assert await value_of(image("aGk=")) == (image("aGk="),)
    assert await value_of("bad \ud800") == "bad ?"
    assert await value_of(ToolResult(call_id="x", name="y", content="own", is_error=True)) == "own"


@pytest.mark.parametrize(
    "kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError, MemoryError]
)
@pytest.mark.parametrize("sync", [True, False])
async def test_whatever_a_body_raises_becomes_a_tool_error(kind: type[BaseException], sync: bool) -> None:
    @tool
    def fails() -> None:
        """Fail."""
        raise kind("boom \ud800\0")

    @tool
    async def fails_later() -> None:
        """Fail."""
        raise kind("boom \ud800\0")

    with pytest.raises(ToolError) as caught:
        await run_tool(fails if sync else fails_later, {}, CONTEXT)
    assert f"builtins.{kind.__name__}" in caught.value.error_classes
    assert str(caught.value).encode()


@pytest.mark.parametrize("error", [HitlInterrupt("t", {}), ToolRejection("no"), AgentError("X", "y")])
async def test_a_bodys_own_word_passes(error: Exception) -> None:
    @tool
    def speaks() -> None:
        """Speak."""
        raise error

    with pytest.raises(type(error)):
        await run_tool(speaks, {}, CONTEXT)


async def test_a_verdict_stamped_in_a_body_is_kept() -> None:
    @tool
    def fatal() -> None:
        """Fail."""
        raise stamp_retryable(ValueError("x"), False)

    with pytest.raises(ToolError) as caught:
        await run_tool(fatal, {}, CONTEXT)
    assert get_retryable(caught.value) is False


def test_a_parameter_without_a_json_form_is_named() -> None:
    @tool
    def odd(lock: threading.Event) -> None:
        """Odd."""

    with pytest.raises(TypeError, match="tool 'odd': a parameter's type has no JSON form"):
        _ = odd.spec


async def test_a_synchronous_body_runs_in_a_thread_of_its_own() -> None:
    @tool
    def where() -> str:
        """Where."""
        return threading.current_thread().name

    result = await run_tool(where, {}, CONTEXT)
    assert result.text != threading.current_thread().name
    ticks = 0

    @tool
    def block() -> str:
        """Block."""
        import time

        time.sleep(0.2)
        return "done"

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await run_tool(block, {}, CONTEXT)
    ticking.cancel()
    assert ticks > 5


def test_a_tool_is_still_the_function_it_was() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    assert add(1, b=2) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tool(lambda a: a), "'<lambda>' is not usable"),
        (lambda: tool(name="x")(lambda a: a), "'a' has no type annotation"),
        (lambda: tool(name="1st")(lambda: None), "not starting with a digit"),
        (lambda: tool(name="x")(lambda *args: None), "name each argument"),
        (lambda: tool(3), "needs a function"),  # type: ignore[call-overload]
        (lambda: tool(timeout_seconds=0)(lambda: None), "more than 0"),
        (lambda: tool(max_attempts=0)(lambda: None), "at least 1"),
        (lambda: tool(local=True, task_queue="gpu")(lambda: None), "drop task_queue"),
    ],
)
def test_a_wrong_tool_is_refused_with_a_sentence(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
