"""AC-54 to AC-75 and the cases D16 to D30: a person decides, and what was decided is what happens."""

from __future__ import annotations

from typing import Any

import pytest

from outlast import (
    AgentRunFailed,
    AgentRunPaused,
    HitlInterrupt,
    HookContext,
    ToolRejection,
    create_middleware,
    hitl_key,
)
from outlast.approvals import parse_decision, parse_decision_message
from outlast.batch import DEFAULT_REJECTION
from outlast.errors import DecisionRefused, ServerFault
from outlast.middleware import DecisionRequest, human_in_the_loop
from outlast.testing import call, calls
from outlast.tools import ToolResult
from tests.unit.judged import ASK, RAN, results, run_of, suspended


@pytest.fixture(autouse=True)
def fresh() -> None:
    RAN.clear()


async def test_a_tool_that_is_not_named_or_false_runs_unasked() -> None:
    """AC-55."""
    run = run_of([calls(call("look", n=1), ASK), "done"], human_in_the_loop({"publish": False}))
    assert results(await run.result()) == ["saw 1", "published draft"]


async def test_approve_runs_the_call_unchanged_and_once() -> None:
    """AC-56, AC-59, AC-67."""
    run = run_of([ASK, "done"])
    await suspended(run)
    [pending] = run.pending
    assert pending.interrupt_id == hitl_key("publish", {"title": "draft"})
    assert pending.allowed_decisions == ("approve", "edit", "reject")
    run.decide("publish", "approve", by="alice")
    assert results(await run.result()) == ["published draft"]
    assert RAN == [("publish", "draft")]


async def test_edit_replaces_the_arguments_and_the_model_is_told_what_ran() -> None:
    """AC-57, AC-68, D16."""
    run = run_of([ASK, "done"])
    await suspended(run)
    run.decide("publish", {"edit": {"title": "better"}})
    result = await run.result()
    assert RAN == [("publish", "better")]
    assert results(result)[0].endswith("published better")
    assert '{"title": "better"}' in results(result)[0]
    assert result.messages[1].tool_calls[0].parse_args()[0] == {"title": "draft"}
    assert result.audit[0].shown_args == {"title": "draft"}


@pytest.mark.parametrize(
    ("reason", "text"), [("too early", "too early"), ("", DEFAULT_REJECTION), (None, DEFAULT_REJECTION)]
)
async def test_reject_tells_the_model_why_and_leaves_a_valid_pair(reason: str | None, text: str) -> None:
    """AC-58, AC-74, D19, D24."""
    run = run_of([ASK, "done"])
    await suspended(run)
    run.restart()
    run.decide("publish", {"reject": reason})
    result = await run.result()
    [found] = result.messages[2].tool_results
    assert (found.text, found.is_error, found.status) == (text, True, "rejected")
    assert RAN == []


async def test_an_approved_call_that_ran_is_not_run_again_where_the_next_model_call_fails() -> None:
    """D26: neither its result nor the answer is lost."""
    run = run_of([ASK, ServerFault("500"), "done"])
    await suspended(run)
    run.decide("publish", "approve", by="alice")
    with pytest.raises(AgentRunPaused, match="ServerFault"):
        await run.result()
    run.restart()
    run.resume()
    result = await run.result()
    assert RAN == [("publish", "draft")]
    assert results(result) == ["published draft"]
    assert [record.decision.by for record in result.audit] == ["alice"]


async def test_suspend_keeps_waiting_and_is_always_allowed() -> None:
    """AC-59."""
    run = run_of([call("spend", euros=5), "done"])
    await suspended(run)
    run.decide("spend", {"suspend": True})
    await suspended(run)
    run.decide("spend", "approve")
    assert results(await run.result()) == ["spent 5"]


async def test_a_decision_that_is_not_allowed_is_refused_and_the_run_keeps_waiting() -> None:
    """AC-64, AC-75."""
    run = run_of([call("spend", euros=5), "done"])
    await suspended(run)
    with pytest.raises(DecisionRefused, match=r"'edit'; allowed: approve, reject"):
        run.decide("spend", {"edit": {"euros": 1}})
    await suspended(run)


@pytest.mark.parametrize("source", ["stored", "decide"])
async def test_a_stored_or_computed_decision_that_is_not_allowed_ends_the_run(source: str) -> None:
    """AC-64."""
    options = {"spend": {"allowed_decisions": ["approve"]}}
    if source == "stored":
        run = run_of(
            [call("spend", euros=5)], human_in_the_loop(options), state={"__hitl_decisions": {"spend": "reject"}}
        )
    else:
        run = run_of([call("spend", euros=5)], human_in_the_loop(options, decide=lambda request: "reject"))
    with pytest.raises(AgentRunFailed, match="HITL_DECISION"):
        await run.result()
    assert RAN == []


async def test_decide_may_be_sync_or_async_and_is_asked_once() -> None:
    """AC-56, D25."""
    asked: list[DecisionRequest] = []

    async def decide(request: DecisionRequest) -> Any:
        asked.append(request)
        return {"edit": {"title": "by code"}}

    run = run_of([ASK, "done"], human_in_the_loop({"publish": True}, decide=decide))
    assert "by code" in results(await run.result())[0]
    [request] = asked
    assert (request.key, request.tool, request.args) == ('publish:{"title": "draft"}', "publish", {"title": "draft"})


@pytest.mark.parametrize("source", ["decide", "stored"])
async def test_an_edit_by_code_that_does_not_fit_the_schema_is_an_error_result(source: str) -> None:
    """AC-57: the model is told, the tool does not run."""
    bad = {"edit": {"titel": 1}}
    gate = human_in_the_loop({"publish": True}, decide=(lambda request: bad) if source == "decide" else None)
    stored = {"__hitl_decisions": {"publish": bad}} if source == "stored" else None
    result = await run_of([ASK, "done"], gate, state=stored).result()
    assert "publish was not run: title: Field required" in results(result)[0]
    assert result.messages[2].tool_results[0].is_error
    assert RAN == []


async def test_an_edit_by_a_person_that_does_not_fit_is_refused_with_the_reason() -> None:
    """AC-57, and section 3: the validator of an answer looks at the schema, so that nothing of it gets to the run."""
    run = run_of([ASK, "done"])
    await suspended(run)
    with pytest.raises(DecisionRefused, match="title: Field required"):
        run.decide("publish", {"edit": {"titel": "x"}})
    await suspended(run)


async def test_the_exact_key_is_looked_up_first_then_the_bare_tool_name() -> None:
    """AC-62, AC-63, AC-65, AC-66: an exact decision is consumed, a bare one stands."""
    stored = {"publish": "approve", hitl_key("publish", {"title": "secret"}): {"reject": "never"}}

    def never(request: DecisionRequest) -> Any:
        raise AssertionError("a stored decision comes first")

    secret = call("publish", title="secret")
    run = run_of(
        [secret, ASK, secret, "done"],
        human_in_the_loop({"publish": True}, decide=never),
        state={"__hitl_decisions": stored},
    )
    result = await run.result()
    assert results(result) == ["never", "published draft", "published secret"]
    assert result.invocation_state["__hitl_decisions"] == {"publish": "approve"}


async def test_the_answer_to_one_interrupt_is_consumed_by_it() -> None:
    """AC-66, D21: the same call again asks again."""
    run = run_of([ASK, ASK, "done"])
    await suspended(run)
    run.decide("publish", {"reject": "no"})
    assert await suspended(run) == ["call_2_1"]


async def test_all_gated_calls_are_pending_at_once_and_nothing_runs_before_the_last_answer() -> None:
    """AC-72, D27, D28, D29, D30, D20."""
    run = run_of([calls(ASK, call("look", n=1), call("spend", euros=5), call("publish", title="b")), "done"])
    assert await suspended(run) == ["call_1_1", "call_1_3", "call_1_4"]
    run.decide("call_1_4", "approve")
    run.decide("spend", {"reject": "dear"})
    assert await suspended(run) == ["call_1_1"]
    assert RAN == []
    run.decide("call_1_1", "approve")
    result = await run.result()
    assert results(result) == ["published draft", "saw 1", "dear", "published b"]
    assert [m.tool_results[0].call_id for m in result.messages[2:6]] == ["call_1_1", "call_1_2", "call_1_3", "call_1_4"]


async def test_identical_calls_share_an_interrupt_and_one_decision_answers_both() -> None:
    """AC-71."""
    run = run_of([calls(ASK, ASK), "done"])
    assert await suspended(run) == ["call_1_1", "call_1_2"]
    assert len({item.interrupt_id for item in run.pending}) == 1
    run.decide(run.pending[0].interrupt_id, "approve")
    assert results(await run.result()) == ["published draft", "published draft"]


async def test_a_bare_name_that_fits_different_calls_is_refused() -> None:
    run = run_of([calls(ASK, call("publish", title="b")), "done"])
    await suspended(run)
    with pytest.raises(DecisionRefused, match="call_1_1, call_1_2"):
        run.decide("publish", "approve")


async def test_a_second_a_late_and_an_unknown_answer_are_refused() -> None:
    """AC-75."""
    run = run_of([ASK, ASK, "done"])
    await suspended(run)
    with pytest.raises(DecisionRefused, match=r"pending: publish \(call_1_1\)"):
        run.decide("publsh", "approve")
    run.decide("call_1_1", "approve")
    with pytest.raises(DecisionRefused, match="decided already"):
        run.decide("call_1_1", "approve")
    await suspended(run)


async def test_a_rejected_call_cannot_run_by_any_later_route() -> None:
    """D18, D19: not after a restart, not by a second answer, not by a resume."""

    def fragile(result: ToolResult, ctx: HookContext) -> None:
        if ctx.invocation_state.setdefault("tries", 0) == 0 and not failed:
            failed.append(True)
            raise RuntimeError("not yet")

    failed: list[bool] = []
    run = run_of([ASK, "done"], human_in_the_loop({"publish": True}), create_middleware("fragile", after_tool=fragile))
    await suspended(run)
    run.decide("publish", {"reject": "no"})
    with pytest.raises(AgentRunPaused):
        await run.result()
    run.restart()
    with pytest.raises(DecisionRefused):
        run.decide("publish", "approve")
    run.resume()
    assert results(await run.result()) == ["no"]
    assert RAN == []


async def test_a_resume_with_more_state_keeps_the_standing_decisions() -> None:
    """D23: what an operator stored before the start still stands after restarts and decisions."""
    run = run_of(
        [call("spend", euros=1), ASK, call("spend", euros=2), "done"],
        state={"__hitl_decisions": {"spend": "approve"}, "tenant": "acme"},
    )
    await suspended(run)
    run.restart()
    run.decide("publish", "approve")
    result = await run.result()
    assert RAN == [("spend", 1), ("publish", "draft"), ("spend", 2)]
    assert result.invocation_state == {"__hitl_decisions": {"spend": "approve"}, "tenant": "acme"}


@pytest.mark.parametrize(("on_timeout", "ran"), [("reject", []), ("approve", [("publish", "draft")])])
async def test_with_no_answer_in_time_the_configured_decision_is_taken(on_timeout: str, ran: list[Any]) -> None:
    gate = human_in_the_loop({"publish": {"timeout_seconds": 60, "reminder_seconds": 20, "on_timeout": on_timeout}})
    run = run_of([ASK, "done"], gate)
    result = await run.result()
    assert ran == RAN
    assert result.audit[0].decision.by == "outlast:timeout"
    assert [event.kind for event in run.events].count("interrupt.reminded") == 1


async def test_the_audit_trail_tells_who_decided_what_on_which_arguments() -> None:
    run = run_of([calls(ASK, call("spend", euros=5)), "done"])
    await suspended(run)
    run.decide("publish", {"edit": {"title": "b"}}, by="alice", comment="typo")
    run.decide("spend", "approve", by="bob")
    first, second = (await run.result()).audit
    assert (first.decision.by, first.decision.comment, first.tool, first.decision.args) == (
        "alice", "typo", "publish", {"title": "b"}
    )  # fmt: skip
    assert (second.decision.by, second.shown_args) == ("bob", {"euros": 5})


async def test_an_unrunnable_call_is_answered_instead_of_shown_to_a_person() -> None:
    run = run_of([call("publish", titel="x"), "done"])
    assert "was not run" in results(await run.result())[0]


async def test_a_run_that_is_stopped_while_it_waits_tells_in_its_result_what_for() -> None:
    """AC-73: the result carries the interrupt; nobody need catch one."""
    run = run_of([ASK, "done"])
    await suspended(run)
    [pending] = run.state.result().interrupts
    await run.cancel()
    [kept] = run.state.result().interrupts
    assert pending == kept
    assert (kept.interrupt_id, kept.tool, kept.args) == ('publish:{"title": "draft"}', "publish", {"title": "draft"})
    assert run.pending == []


async def test_decide_is_not_asked_again_after_a_restart() -> None:
    """D25: once per call, whatever fails behind it."""
    asked: list[str] = []

    def decide(request: DecisionRequest) -> str:
        asked.append(request.tool_call_id)
        return "approve"

    def fragile(result: ToolResult, ctx: HookContext) -> None:
        if not failed:
            failed.append(True)
            raise RuntimeError("deploy")

    failed: list[bool] = []
    gate = human_in_the_loop({"publish": True}, decide=decide)
    run = run_of([ASK, ASK, "done"], gate, create_middleware("fragile", after_tool=fragile))
    with pytest.raises(AgentRunPaused):
        await run.result()
    run.restart()
    run.resume()
    await run.result()
    assert asked == ["call_1_1", "call_2_1"]


def test_the_name_of_a_caught_interrupt_ends_with_its_block() -> None:
    """AC-73: Python's own gotcha, as documented."""
    try:
        raise HitlInterrupt("publish", {"title": "x"})
    except HitlInterrupt as error:
        kept = error
    assert "error" not in locals()
    assert kept.tool == "publish"


@pytest.mark.parametrize(
    ("interrupt_on", "message"),
    [
        ({"publish": {"allowed_decisions": []}}, "not empty"),
        ({"publish": {"allowed_decisions": ["aprove"]}}, "unknown decision 'aprove'"),
        ({"publish": {"allow_decisions": ["approve"]}}, "unknown option 'allow_decisions'"),
        ({"publish": {"allowed_decisions": "approve"}}, "must be a list"),
        ({"publish": "approve"}, "must be True, False or options"),
        ({"publish": {"timeout_seconds": -1}}, "more than 0 seconds"),
        ({"publish": {"on_timeout": "edit"}}, "'reject' or 'approve'"),
        (["publish"], "must map tool names"),
    ],
)
def test_a_misspelt_gate_is_refused_when_it_is_made(interrupt_on: Any, message: str) -> None:
    """AC-55, D17: a typo never opens the gate."""
    with pytest.raises((TypeError, ValueError), match=message):
        human_in_the_loop(interrupt_on)


def test_camel_case_options_are_understood() -> None:
    """AC-55."""
    gate = human_in_the_loop({"publish": {"allowedDecisions": ["approve"]}})
    assert gate.interrupt_on["publish"].allowed_decisions == ("approve",)


@pytest.mark.parametrize("value", [None, "aprove", {}, {"edit": "x"}, {"edit": {1: 2}}, {"approve": False}, [], 3])
def test_what_is_no_decision_is_refused_with_the_forms(value: Any) -> None:
    with pytest.raises(ValueError, match="use 'approve'"):
        parse_decision(value)


@pytest.mark.parametrize(
    "value",
    [None, "approve", [], {}, {"interrupt": 3, "decision": "approve"}, {"interrupt": "", "decision": "approve"},
     {"interrupt": "x"},
     {"interrupt": "x", "decision": "approve", "who": "me"}, {"interrupt": "x", "decision": "edit"}],
)  # fmt: skip
def test_a_malformed_decision_message_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_decision_message(value)


def test_rejections_may_be_raised_with_an_empty_text() -> None:
    assert ToolRejection("").message == ""
