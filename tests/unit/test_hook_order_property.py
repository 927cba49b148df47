"""Random stacks of middlewares that edit, reject, answer, rewrite and try twice, against the reference model (T7)."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from outlast import Agent, AgentOptions, HookContext, ToolRejection, create_middleware, tool
from outlast.errors import ToolError
from outlast.middleware.contract import ToolNext
from outlast.testing import MemoryRuntime, ScriptedModel, call, calls
from outlast.tools import ToolCall, ToolResult
from tests.unit.reference import Spec, expected

SPECS = st.lists(
    st.tuples(
        st.sampled_from(["pass", "edit", "edit", "reject"]),
        st.sampled_from(["pass", "pass", "twice", "catch", "answer", "raise"]),
        st.booleans(),
    ),
    max_size=5,
).map(lambda rows: [Spec(name, *row) for name, row in zip("ABCDE", rows, strict=False)])


def middleware(spec: Spec, trace: list[str]) -> object:
    def before(call: ToolCall, ctx: HookContext) -> ToolCall | None:
        marks = call.args.get("marks", "")
        trace.append(f"before {spec.name} {call.args['x']}{marks}")
        if spec.before == "reject":
            raise ToolRejection(f"{spec.name} rejects")
        if spec.before == "edit" and spec.name not in marks:
            return call.replace(args={**call.args, "marks": "".join(sorted(marks + spec.name))})
        return None

    async def around(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        trace.append(f"around {spec.name} {call.args['x']}{call.args.get('marks', '')}")
        if spec.around == "answer":
            return ToolResult(call_id=call.id, name=call.name, content=f"{spec.name} answers")
        if spec.around == "raise":
            raise ToolError(f"{spec.name} raises")
        try:
            if spec.around == "twice":
                await call_next(call)
            return await call_next(call)
        except ToolError:
            if spec.around != "catch":
                raise
            return ToolResult(call_id=call.id, name=call.name, content=f"{spec.name} catches")

    async def after(result: ToolResult, ctx: HookContext) -> ToolResult | None:
        x = result.call_id.rpartition("_")[2]
        trace.append(f"after {spec.name} {x}")
        return result.replace(content=f"{result.text}+{spec.name}") if spec.rewrites else None

    return create_middleware(spec.name, before_tool=before, around_tool=around, after_tool=after)


@settings(max_examples=300, deadline=None)
@given(SPECS, st.integers(1, 3))
def test_any_stack_of_middlewares_leaves_the_trace_of_the_reference_model(stack: list[Spec], count: int) -> None:
    trace: list[str] = []

    @tool
    async def act(x: str, marks: str = "") -> str:
        """Act."""
        trace.append(f"body {x}{marks}")
        return f"ran {x}{marks}"

    names = [str(number + 1) for number in range(count)]
    model = ScriptedModel([calls(*(call("act", x=x) for x in names)), "done"])
    options = AgentOptions(
        name="a",
        model=model,
        tools=[act],
        middleware=[middleware(spec, trace) for spec in stack],
        max_parallel_tools=1,
    )

    async def run() -> Any:
        return await MemoryRuntime(Agent(options), "go").result()

    result = asyncio.run(run())
    texts = [found.text for message in result.messages for found in message.tool_results]
    plain = [_plain(text) for text in texts]
    wanted_trace, wanted_texts = expected(stack, names)
    assert (_by_call(trace), plain) == (_by_call(wanted_trace), wanted_texts)
    assert _gates(trace) == _gates(wanted_trace)


def _gates(trace: list[str]) -> list[str]:
    return [line for line in trace if line.startswith("before")]


def _plain(text: str) -> str:
    """The text with the engine's notice of an edit shortened."""
    return "[edited]" + text.partition("]\n")[2] if text.startswith("[The call was edited") else text


def _by_call(trace: list[str]) -> dict[str, list[str]]:
    """The trace of each call: calls run concurrently, so only the order within one is pinned."""
    found: dict[str, list[str]] = {}
    for line in trace:
        found.setdefault(line.split()[-1][0], []).append(line)
    return found
