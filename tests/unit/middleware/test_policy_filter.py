"""AC-107 to AC-112: which tools a run may call, by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import AgentError, HookContext, create_middleware, get_retryable, tool
from outlast.errors import AgentRunFailed
from outlast.middleware import human_in_the_loop, policy_filter
from outlast.testing.memory import MemoryRuntime, RunSuspended
from outlast.testing.scripted import ScriptedModel, call, calls
from outlast.tools import ToolCall
from tests.unit.middleware.agents import agent, run, statuses, texts


@tool
def read() -> str:
    """Read."""
    return "read"


@tool
def delete() -> str:
    """Delete."""
    return "deleted"


TOOLS = [read, delete]


def test_deny_wins_over_allow() -> None:
    """AC-107."""
    policy = policy_filter(allow=["read", "delete"], deny=["delete"])
    assert (policy.permits("read"), policy.permits("delete")) == (True, False)


def test_with_an_allow_list_what_is_not_on_it_is_denied_and_without_one_what_is_not_denied_is_allowed() -> None:
    """AC-108."""
    assert not policy_filter(allow=["read"]).permits("write")
    assert policy_filter(deny=["read"]).permits("write")


def test_an_empty_allow_list_denies_all_and_no_list_at_all_is_a_mistake() -> None:
    """AC-108."""
    assert not policy_filter(allow=[]).permits("read")
    with pytest.raises(ValueError, match="give allow, deny or both"):
        policy_filter()


@pytest.mark.parametrize("name", ["Read", "read ", "reader", "unread", "READ", "re", ""])
def test_a_text_is_a_whole_name_to_the_letter(name: str) -> None:
    """AC-109."""
    assert not policy_filter(allow=["read"]).permits(name)


def test_a_text_is_never_a_pattern() -> None:
    """AC-110."""
    assert not policy_filter(allow=[".*", "r..d"]).permits("read")


def test_a_pattern_is_searched_for_anywhere() -> None:
    """AC-109."""
    assert policy_filter(allow=[re.compile("read")]).permits("unread_delete")
    assert not policy_filter(allow=[re.compile("^read_")]).permits("unread_delete")
    assert policy_filter(allow=[re.compile("READ", re.IGNORECASE)]).permits("read")


def test_one_name_has_one_verdict_a_thousand_times() -> None:
    """AC-110."""
    policy = policy_filter(allow=[re.compile("read")], deny=[re.compile("delete")])
    verdicts = [(policy.permits("read_page"), policy.permits("read_delete")) for _ in range(1000)]
    assert set(verdicts) == {(True, False)}


def test_what_the_caller_does_with_its_list_later_changes_nothing() -> None:
    """AC-110."""
    rules: list[str | re.Pattern[str]] = ["read"]
    policy = policy_filter(allow=rules)
    rules.append("delete")
    assert not policy.permits("delete")


def test_a_text_of_a_subclass_cannot_claim_to_be_every_name() -> None:
    """AC-110."""

    class Anything(str):
        def __hash__(self) -> int:
            return hash("delete")

        def __eq__(self, other: object) -> bool:
            return True

        def __str__(self) -> str:
            return "delete"

    policy = policy_filter(allow=[Anything("read")])
    assert (policy.permits("read"), policy.permits("delete")) == (True, False)


class Lookalike:
    """Quacks like a pattern, and answers as it likes."""

    pattern = "read"
    flags = 0

    def search(self, name: str) -> bool:
        return True


@pytest.mark.parametrize("rule", [Lookalike(), re.compile(b"read"), 3, None, b"read"])
def test_what_is_neither_a_text_nor_a_compiled_pattern_is_refused(rule: Any) -> None:
    """AC-110."""
    with pytest.raises(TypeError, match="policy_filter: deny holds"):
        policy_filter(deny=[rule])


@pytest.mark.parametrize("rules", ["read", re.compile("read"), 3, b"read"])
def test_a_lone_rule_is_not_taken_for_a_list(rules: Any) -> None:
    with pytest.raises(TypeError, match="allow must be a list of names and compiled patterns"):
        policy_filter(allow=rules)


def test_bad_values_are_named() -> None:
    with pytest.raises(ValueError, match="allow holds ''"):
        policy_filter(allow=[""])
    with pytest.raises(ValueError, match="exit_behavior must be 'continue' or 'error', not 'stop'"):
        policy_filter(allow=["a"], exit_behavior="stop")  # type: ignore[arg-type] # what is tested


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"(a*)*b",
        r"(a|aa)+$",
        r"(?:a|b|ab)*c",
        r"(?:(a+)+)+",
        r"(x+x+)+y",
        r"a*a*a*a*b",
        r"(?=(a+)+$)",
        r"(a?){40}b",
        "a?" * 40 + "b",
        r"((((((((a+)+)+)+)+)+)+)+)+",
        r"(.*)\1\1",
        r"([a-z]+_)*x",
    ],
)
def test_a_pattern_that_could_take_too_long_is_refused_when_it_is_given(pattern: str) -> None:
    """AC-110."""
    with pytest.raises(ValueError, match="could take too long on a hostile name"):
        policy_filter(deny=[re.compile(pattern)])


@pytest.mark.parametrize(
    "pattern",
    [
        r"^read_",
        r"^(?:get|list|read)_\w+$",
        r".*_delete$",
        r"^fs_.*_(?:read|list)$",
        r"^[a-z]{2,10}_v[0-9]+$",
        r"(?i)admin",
        r"^(?!internal_).*",
        r"^[^_]+_[^_]+_[^_]+$",
        r"(?:ab){2}",
        r"a{3}b{0,3}",
    ],
)
def test_patterns_as_people_write_them_are_taken(pattern: str) -> None:
    compiled = re.compile(pattern)
    for name in ("read_page", "fs_a_read", "abab", "x" * 64, "aaabbb", "get_a_b"):
        assert policy_filter(allow=[compiled]).permits(name) == bool(compiled.search(name))


@given(st.text(min_size=65, max_size=5000))
def test_a_name_that_no_tool_can_have_is_denied_without_a_search(name: str) -> None:
    assert not policy_filter(allow=[re.compile("")]).permits(name)
    assert not policy_filter(deny=["x"]).permits(name)


async def test_continue_answers_with_feedback_and_the_run_goes_on() -> None:
    """AC-111."""
    turn = calls(call("delete"), call("read"))
    result = await run([turn, "done"], policy_filter(deny=["delete"]), tools=TOOLS)
    assert statuses(result.messages) == ["rejected", "executed"]
    assert texts(result.messages)[0].startswith("delete did not run: the policy of this run does not allow it")
    assert result.output == "done"


async def test_error_ends_the_run_and_nothing_of_the_batch_runs() -> None:
    """AC-111."""
    turn = calls(call("read"), call("delete"))
    with pytest.raises(AgentRunFailed) as ended:
        await run([turn, "never"], policy_filter(deny=["delete"], exit_behavior="error"), tools=TOOLS)
    assert ended.value.code == "POLICY_DENIED"
    with pytest.raises(AgentError) as raised:
        policy_filter(deny=["x"], exit_behavior="error").before_tool(ToolCall(id="1", name="x"), HookContext())
    assert get_retryable(raised.value) is False
    assert ended.value.result is not None
    assert statuses(ended.value.result.messages) == ["cancelled", "cancelled"]


async def test_the_name_that_will_run_is_judged_though_a_later_hook_gave_it() -> None:
    """AC-112."""
    rename = create_middleware("rename", before_tool=lambda call, ctx: call.replace(name="delete"))
    result = await run([call("read"), "done"], policy_filter(deny=["delete"]), rename, tools=TOOLS)
    assert statuses(result.messages) == ["rejected"]


async def test_a_person_is_not_asked_about_what_the_policy_denies_and_cannot_overrule_it() -> None:
    """AC-112."""
    hooks = policy_filter(deny=["delete"]), human_in_the_loop({"delete": True, "read": True})
    memory = MemoryRuntime(agent([calls(call("delete"), call("read")), "done"], *hooks, tools=TOOLS), "go")
    with pytest.raises(RunSuspended):
        await memory.result()
    assert [pending.tool for pending in memory.pending] == ["read"]
    memory.restart()
    memory.decide("read", "approve")
    assert statuses((await memory.result()).messages) == ["rejected", "executed"]


async def test_denied_tools_are_advertised_unless_they_shall_be_hidden() -> None:
    """AC-112."""
    for hide, names in ((False, ["read", "delete"]), (True, ["read"])):
        model = ScriptedModel([call("delete"), "done"])
        result = await run(model, policy_filter(deny=["delete"], hide=hide), tools=TOOLS)
        assert [spec.name for spec in model.requests[0].tools] == names
        assert statuses(result.messages) == ["rejected"]
