"""AC-35, AC-67 to AC-70: hooks and tools that ask a person themselves, and hooks around a question."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import (
    Agent,
    AgentOptions,
    HitlInterrupt,
    HookContext,
    ToolContext,
    create_middleware,
    tool,
)
from outlast.middleware import human_in_the_loop
from outlast.middleware.contract import ToolNext
from outlast.testing import MemoryRuntime, ScriptedModel, call, calls
from outlast.tools import ToolCall, ToolResult
from tests.unit.judged import ASK, RAN, look, results, run_of, suspended


@pytest.fixture(autouse=True)
def fresh() -> None:
    RAN.clear()


async def test_edited_arguments_are_what_later_hooks_and_watchers_are_shown() -> None:
    """AC-68."""
    seen: list[Any] = []

    async def around(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        seen.append(call.args)
        return await call_next(call)

    later = create_middleware("later", before_tool=lambda call, ctx: seen.append(call.args), around_tool=around)
    run = run_of([ASK, "done"], human_in_the_loop({"publish": True}), later)
    await suspended(run)
    run.decide("publish", {"edit": {"title": "better"}})
    await run.result()
    assert seen == [{"title": "better"}] * 2
    assert [event.data["args"] for event in run.events if event.kind == "tool.started"] == [{"title": "better"}]


async def test_an_editor_behind_the_gate_makes_it_ask_again() -> None:
    """AC-69: what the approver is shown is what runs."""

    def stamp(call: ToolCall, ctx: HookContext) -> ToolCall | None:
        return call.replace(args={"title": call.args["title"] + "!"}) if not call.args["title"].endswith("!") else None

    with pytest.warns(UserWarning, match="register it before human_in_the_loop"):
        run = run_of([ASK, "done"], human_in_the_loop({"publish": True}), create_middleware("stamp", before_tool=stamp))
    await suspended(run)
    run.decide("publish", "approve")
    await suspended(run)
    assert run.pending[0].args == {"title": "draft!"}
    run.decide("publish", "approve")
    await run.result()
    assert RAN == [("publish", "draft!")]


async def test_a_renamed_call_is_gated_by_its_new_name() -> None:
    """AC-70."""
    rename = create_middleware(
        "rename", before_tool=lambda call, ctx: call.replace(name="publish", args={"title": "x"})
    )
    run = run_of([call("look", n=1), "done"], human_in_the_loop({"publish": True}), rename)
    await suspended(run)
    assert run.pending[0].tool == "publish"


async def test_after_the_decision_only_the_hook_that_asked_is_called_again() -> None:
    seen: list[str] = []
    before = create_middleware("before", before_tool=lambda call, ctx: seen.append("before"))
    after = create_middleware("after", before_tool=lambda call, ctx: seen.append("after"))
    run = run_of([ASK, "done"], before, human_in_the_loop({"publish": True}), after)
    await suspended(run)
    run.restart()
    run.decide("publish", "approve")
    await run.result()
    assert seen == ["before", "after"]


@pytest.mark.parametrize("reads", [True, False])
async def test_a_hook_of_your_own_may_interrupt_and_read_the_answer_or_leave_it_to_the_engine(reads: bool) -> None:
    def gate(call: ToolCall, ctx: HookContext) -> ToolCall | None:
        if reads and (decision := ctx.decision(call)) is not None:
            return call.replace(args=decision.args or {})
        raise HitlInterrupt(call.name, call.args)

    run = run_of([ASK, "done"], create_middleware("gate", before_tool=gate))
    await suspended(run)
    run.decide("publish", {"edit": {"title": "mine"}})
    await run.result()
    assert RAN == [("publish", "mine")]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [("approve", "sent to all (approve)"), ({"edit": {"to": "few"}}, "sent to few (edit)"), ({"reject": "no"}, "no")],
)
async def test_a_tool_may_interrupt_and_finds_the_decision_in_its_context(decision: Any, expected: str) -> None:
    """AC-35's other half: one question, and the body runs again with the answer."""
    entered: list[str | None] = []

    @tool
    def send(to: str, context: ToolContext) -> str:
        """Send."""
        entered.append(context.decision)
        if context.decision is None:
            raise HitlInterrupt("send", {"to": to})
        return f"sent to {to} ({context.decision})"

    agent = Agent(AgentOptions(name="a", model=ScriptedModel([call("send", to="all"), "done"]), tools=[send]))
    run = MemoryRuntime(agent, "go")
    await suspended(run)
    run.restart()
    run.decide("send", decision)
    assert expected in results(await run.result())[0]
    assert entered[0] is None


async def test_an_around_tool_hook_may_interrupt_and_read_the_answer() -> None:
    async def gate(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        if ctx.decision(call) is None:
            raise HitlInterrupt(call.name, call.args)
        return await call_next(call)

    run = run_of([ASK, "done"], create_middleware("gate", around_tool=gate))
    await suspended(run)
    run.decide("publish", "approve")
    assert results(await run.result()) == ["published draft"]


@pytest.mark.parametrize(
    ("decision", "ran", "expected"),
    [
        ("approve", [("publish", "draft")], "published draft"),
        ({"edit": {"title": "mine"}}, [("publish", "mine")], "published mine"),
        ({"reject": "no"}, [], "no"),
    ],
)
async def test_an_around_tool_hooks_question_is_obeyed_whatever_the_hook_makes_of_the_answer(
    decision: Any, ran: list[Any], expected: str
) -> None:
    """Fail closed: the hook here takes every answer for a yes."""

    async def careless(call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        if ctx.decision(call) is None:
            raise HitlInterrupt(call.name, call.args)
        return await call_next(call)

    run = run_of([ASK, "done"], create_middleware("gate", around_tool=careless))
    await suspended(run)
    run.restart()
    run.decide("publish", decision)
    assert results(await run.result())[0].endswith(expected)
    assert ran == RAN


async def test_what_a_person_is_shown_is_what_runs_also_where_a_hook_shows_something_else() -> None:
    """AC-69."""

    def show(call: ToolCall, ctx: HookContext) -> None:
        if ctx.decision(call) is None:
            raise HitlInterrupt("spend", {"euros": 7})

    run = run_of([ASK, "done"], create_middleware("shows", before_tool=show))
    await suspended(run)
    assert (run.pending[0].tool, run.pending[0].args) == ("spend", {"euros": 7})
    run.decide("spend", "approve")
    result = await run.result()
    assert RAN == [("spend", 7)]
    assert 'What ran: spend:{"euros": 7}' in results(result)[0]


async def test_an_answer_to_one_gate_never_opens_another() -> None:
    """The first gate asks, and does not read its answer; the second must ask for itself."""
    asked: list[str] = []

    def first(call: ToolCall, ctx: HookContext) -> None:
        asked.append("first")
        if len(asked) == 1:
            raise HitlInterrupt(call.name, call.args)

    run = run_of([ASK, "done"], create_middleware("first", before_tool=first), human_in_the_loop({"publish": True}))
    await suspended(run)
    run.decide("publish", "approve")
    await suspended(run)
    assert RAN == []
    run.decide("publish", {"reject": "no"})
    assert results(await run.result()) == ["no"]


async def test_a_hook_cannot_read_the_answer_that_another_one_asked_for() -> None:
    stolen: list[Any] = []

    def curious(call: ToolCall, ctx: HookContext) -> None:
        stolen.append(ctx.decision(call))

    def edit(call: ToolCall, ctx: HookContext) -> ToolCall | None:
        decision = ctx.decision(call)
        if decision is None and call.args["title"] == "draft":
            raise HitlInterrupt(call.name, call.args)
        return None

    run = run_of(
        [ASK, "done"], create_middleware("curious", before_tool=curious), create_middleware("edit", before_tool=edit)
    )
    await suspended(run)
    run.decide("publish", {"edit": {"title": "x"}})
    await run.result()
    assert [item for item in stolen if item is not None] == []


async def test_a_rejected_hook_that_does_not_read_its_answer_rejects() -> None:
    """Fail closed: the hook says yes the second time, the person said no."""
    asked: list[str] = []

    def once(call: ToolCall, ctx: HookContext) -> None:
        asked.append(call.id)
        if len(asked) == 1:
            raise HitlInterrupt(call.name, call.args)

    run = run_of([ASK, "done"], create_middleware("once", before_tool=once))
    await suspended(run)
    run.decide("publish", {"reject": "never"})
    assert results(await run.result()) == ["never"]
    assert RAN == []


async def test_siblings_that_ran_do_not_run_again_after_a_tool_was_decided() -> None:
    """AC-67, D26."""

    @tool
    def risky(n: int, context: ToolContext) -> str:
        """Risky."""
        if context.decision is None:
            raise HitlInterrupt("risky", {"n": n})
        return "did it"

    model = ScriptedModel([calls(call("look", n=1), call("risky", n=2)), "done"])
    run = MemoryRuntime(Agent(AgentOptions(name="a", model=model, tools=[look, risky])), "go")
    await suspended(run)
    run.restart()
    run.decide("risky", "approve")
    assert results(await run.result()) == ["saw 1", "did it"]
    assert RAN == [("look", 1)]
