"""Orders of middlewares that are refused or warned of: what is said, and what such a pair does in a run.

Section 2 of the criteria, the recommended order.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest

from outlast import Agent, AgentOptions, HookContext, create_middleware, stamp_retryable, tool
from outlast.errors import ModelError
from outlast.middleware import (
    ClearToolUsesEdit,
    context_editing_middleware,
    human_in_the_loop,
    llm_tool_selector_middleware,
    model_fallback,
    model_retry,
    pii_redact,
    policy_filter,
    summarization_middleware,
    tool_call_limit,
)
from outlast.model import ModelRequest
from outlast.state import RunResult
from outlast.testing import MemoryRuntime, RunSuspended, ScriptedModel, call
from outlast.testing.scripted import Reply, text
from outlast.tools import ToolCall

ADDRESS = "bob@example.com"


@tool
def look(n: int) -> str:
    """Look."""
    return f"saw {n} " + "word " * 60


@tool
def publish(title: str) -> str:
    """Publish."""
    return f"published {title}"


def agent(stack: Sequence[object], script: Sequence[Reply] = ("done",), model: ScriptedModel | None = None) -> Agent:
    model = model or ScriptedModel(script)
    return Agent(AgentOptions(name="a", model=model, tools=[look, publish], middleware=stack))


def doubtful(*stack: object, script: Sequence[Reply] = ("done",)) -> Agent:
    """The agent of an order that is warned of, once."""
    with pytest.warns(UserWarning, match="register|on_failure") as told:
        made = agent(stack, script)
    assert len(told) == 1
    return made


async def questions(made: Agent, approve: int = 9) -> tuple[int, RunResult]:
    """How often people are asked, each time approving, and what came of it."""
    run = MemoryRuntime(made, "go")
    for asked in range(approve):
        try:
            return asked, await run.result()
        except RunSuspended as waiting:
            for item in waiting.pending:
                run.decide(item.tool_call_id, "approve")
    raise AssertionError("the run does not end")


APPROVE = human_in_the_loop({"publish": True})
SCRIPT: list[Reply] = [call("publish", title="x"), "done"]


def rename(given: ToolCall, ctx: HookContext) -> ToolCall:
    return given.replace(args={"title": "y"})


def watch(given: ToolCall, ctx: HookContext) -> None:
    pass


EDITS = create_middleware("edits", before_tool=rename)
BLOCK = pii_redact("email", "block", apply_to_tool_args=True)
MODEL = ScriptedModel(["notes"] * 50)
SUMMARIZE = summarization_middleware(MODEL, 200, 4)
SELECT = llm_tool_selector_middleware(MODEL, max_tools=1)


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        ([model_fallback("openai:x"), model_retry(on_failure="continue")], "no fallback is asked then"),
        ([APPROVE, policy_filter(deny=["publish"])], "people are asked about publish.* register policy_filter before"),
        ([APPROVE, tool_call_limit(run_limit=1)], "people are asked about tools beyond the limit"),
        ([APPROVE, tool_call_limit("publish", 1)], "register tool_call_limit.publish before human_in_the_loop"),
        ([APPROVE, BLOCK], "a blocked email in their arguments"),
        ([APPROVE, EDITS], "before_tool of 'edits' runs after human_in_the_loop: .* people are asked again"),
        ([SUMMARIZE, pii_redact("email")], "register pii_redact.email before summarization"),
        ([SELECT, pii_redact("email")], "its model reads what users wrote, unredacted"),
        ([pii_redact("ip"), SUMMARIZE, pii_redact("email")], "register pii_redact.email before summarization"),
    ],
)
def test_an_order_that_is_doubtful_is_warned_of_at_the_line_that_makes_the_agent(
    stack: list[object], said: str
) -> None:
    with pytest.warns(UserWarning, match=said) as told:
        agent(stack)
    assert [item.filename for item in told] == [__file__]
    agent(stack[::-1] if len(stack) == 2 else [stack[0], stack[2], stack[1]])  # a warning here is an error


@pytest.mark.parametrize(
    "stack",
    [
        [model_fallback("openai:x"), model_retry()],
        [APPROVE, policy_filter(deny=["look"])],
        [APPROVE, tool_call_limit("look", 1)],
        [human_in_the_loop({"publish": False}), tool_call_limit(run_limit=1), EDITS],
        [APPROVE, pii_redact("email", "block")],
        [APPROVE, pii_redact("email", apply_to_tool_args=True)],
        [APPROVE, create_middleware("watches", before_tool=watch)],
        [APPROVE, create_middleware("undeclared", before_tool=lambda call, ctx: None)],
        [APPROVE, create_middleware("models", before_model=lambda request, ctx: None)],
        [SUMMARIZE, pii_redact("email", apply_to_input=False)],
        [SUMMARIZE, pii_redact("name", detector="Bob")],
        [context_editing_middleware([]), SUMMARIZE],
    ],
)
def test_an_order_that_does_no_harm_is_not_warned_of(stack: list[object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent(stack)


async def conversation(stack: Sequence[object]) -> list[list[str]]:
    """The texts of users in each request of a run with many calls of a tool."""
    seen: list[list[str]] = []

    def turn(request: ModelRequest) -> Reply:
        seen.append([message.text for message in request.messages if message.role == "user"])
        return call("look", n=len(seen)) if len(seen) < 20 else text("done")

    await MemoryRuntime(agent(stack, model=ScriptedModel([turn] * 20)), "the task").result()
    return seen


class Clears(ClearToolUsesEdit):
    """One of the user's own that does the same."""


@pytest.mark.parametrize("edit", [ClearToolUsesEdit(1200, 1), Clears(1200, 1)])
def test_an_order_that_loses_notes_is_refused(edit: ClearToolUsesEdit) -> None:
    with pytest.raises(ValueError, match=r"agent 'a': .*notes are lost .* register summarization before context_e"):
        agent([context_editing_middleware([edit]), SUMMARIZE])


async def test_notes_are_lost_where_calls_are_stripped_before_they_are_summarized() -> None:
    class Elsewhere:
        """Strips as ContextEditing does, and is not known to."""

        name = "elsewhere"
        inner = context_editing_middleware([ClearToolUsesEdit(1200, 1)])

        def before_model(self, request: ModelRequest, ctx: HookContext) -> ModelRequest:
            return self.inner.before_model(request, ctx)

    def lost(seen: list[list[str]]) -> int:
        first = next(index for index, texts in enumerate(seen) if any("Notes on" in item for item in texts))
        return sum(not any("Notes on" in item for item in texts) for texts in seen[first:])

    assert lost(await conversation([Elsewhere(), SUMMARIZE])) > 0
    assert lost(await conversation([SUMMARIZE, Elsewhere()])) == 0


async def test_a_retry_that_goes_on_hides_retried_errors_from_the_fallback_and_no_others() -> None:
    errors = [ModelError("busy"), stamp_retryable(ModelError("key"), False)]
    for error, answer in zip(errors, ["busy", "from the fallback"], strict=True):
        stack = (model_fallback(ScriptedModel(["from the fallback"])), model_retry(0, on_failure="continue"))
        result = await MemoryRuntime(doubtful(*stack, script=[error]), "go").result()
        assert answer in str(result.output)
        assert ("from the fallback" in str(result.output)) is (answer != "busy")


@pytest.mark.parametrize(
    "refuses",
    [policy_filter(deny=["publish"]), tool_call_limit(run_limit=0, exit_behavior="continue"), BLOCK],
    ids=["policy", "limit", "pii"],
)
async def test_people_are_asked_in_vain_where_what_refuses_stands_after_approvals(refuses: object) -> None:
    script: list[Reply] = [call("publish", title=f"to {ADDRESS}"), "done"]
    asked, result = await questions(doubtful(APPROVE, refuses, script=script))
    assert (asked, result.messages[2].tool_results[0].status) == (1, "rejected")
    asked, result = await questions(agent([refuses, APPROVE], script))
    assert (asked, result.messages[2].tool_results[0].status) == (0, "rejected")


async def test_people_are_asked_again_where_a_call_is_edited_after_approvals() -> None:
    asked, _ = await questions(doubtful(APPROVE, EDITS, script=SCRIPT))
    assert asked == 2
    asked, result = await questions(agent([EDITS, APPROVE], SCRIPT))
    assert asked == 1
    assert result.messages[2].tool_results[0].text.endswith("published y")


@pytest.mark.parametrize("kind", ["summarization", "selector"])
async def test_another_model_reads_what_users_wrote_where_it_is_asked_before_it_is_redacted(kind: str) -> None:
    def told(model: ScriptedModel) -> bool:
        return any(ADDRESS in message.text for request in model.requests for message in request.messages)

    async def run(redact: object, before: bool, warned: bool) -> bool:
        model = ScriptedModel(["notes"] * 10)
        asks = (
            summarization_middleware(model, 1, 1) if kind == "summarization" else llm_tool_selector_middleware(model, 1)
        )
        stack = [redact, asks] if before else [asks, redact]
        script: list[Reply] = [call("look", n=1), call("look", n=2), "done"]
        made = doubtful(*stack, script=script) if warned else agent(stack, script)
        await MemoryRuntime(made, f"write to {ADDRESS}").result()
        assert model.requests
        return told(model)

    assert await run(pii_redact("email"), before=False, warned=True)
    assert not await run(pii_redact("email"), before=True, warned=False)
    assert not await run(pii_redact("mail", detector=r"bob@[a-z.]{1,20}"), before=False, warned=False)
