"""AC-76 to AC-81, AC-84 to AC-86, AC-89, D50 to D53: what becomes of personal data on each of its ways."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast import HookContext, create_middleware, tool
from outlast.errors import AgentRunFailed, ToolRejection, get_retryable
from outlast.messages import (
    MediaBlock,
    Message,
    OpaqueBlock,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    assistant,
    system,
    user,
)
from outlast.middleware import human_in_the_loop, model_retry, pii_redact, run_before_model
from outlast.middleware.pii_redact import PiiRedact
from outlast.middleware.sub_agents import SubAgent, create_sub_agent_middleware
from outlast.model import ModelRequest
from outlast.testing.memory import MemoryRuntime, RunSuspended
from outlast.testing.scripted import ScriptedModel, call
from outlast.tools import ToolResult
from tests.unit.middleware.agents import agent, run, statuses, texts

MAIL = "alice@example.com"
CARD = "4111111111111111"
IP = "10.0.0.1"


@tool
def lookup(who: str) -> str:
    """Look somebody up."""
    return f"{who} is {MAIL}"


@tool
def broken() -> str:
    """Fail."""
    raise LookupError(f"no {MAIL}")


async def seen(message: Message | str, *middleware: PiiRedact) -> Message:
    """A user's message as the model gets it."""
    request = ModelRequest(messages=(user(message) if isinstance(message, str) else message,))
    return (await run_before_model(middleware, request, HookContext())).messages[0]


@pytest.mark.parametrize("pii_type", ["email", "credit_card", "ip"])
def test_three_types_are_built_in(pii_type: str) -> None:
    """AC-76."""
    assert pii_redact(pii_type).name == f"pii_redact.{pii_type}"


def test_another_type_needs_a_detector() -> None:
    """AC-76."""
    with pytest.raises(ValueError, match="no built-in detector of 'passport'; there are email, credit_card, ip"):
        pii_redact("passport")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "remove"}, "strategy must be 'redact' or 'mask'"),
        ({"hash_key": "k"}, "hash_key is for strategy='hash'"),
        ({"strategy": "hash", "hash_key": ""}, "not empty"),
        ({"detector": r"\d*"}, "can match nothing"),
        ({"detector": r"(a+)+$"}, "could take too long"),
        ({"detector": r"\w{10,}", "strategy": "hash"}, "would find its own hashes"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options: Any, message: str) -> None:
    """D53, AC-87."""
    with pytest.raises(ValueError, match=message):
        pii_redact("id", **{"detector": "x", **options})


@pytest.mark.parametrize(
    ("pii_type", "text", "redacted"),
    [("email", MAIL, "[REDACTED_EMAIL]"), ("credit_card", CARD, "[REDACTED_CREDIT_CARD]"), ("ip", IP, "[REDACTED_IP]")],
)
async def test_redact_puts_the_type_in_capitals(pii_type: str, text: str, redacted: str) -> None:
    """AC-78."""
    assert (await seen(f"a {text} b", pii_redact(pii_type))).text == f"a {redacted} b"


async def test_the_name_of_a_type_of_ones_own_is_only_put_in_capitals() -> None:
    """AC-78."""
    assert (await seen("EMP-123456", pii_redact("staff id-no", detector=r"EMP-\d{6}"))).text == "[REDACTED_STAFF ID-NO]"


@pytest.mark.parametrize(("pii_type", "text"), [("email", MAIL), ("credit_card", CARD), ("ip", IP)])
async def test_mask_keeps_the_first_character_and_is_not_found_again(pii_type: str, text: str) -> None:
    """AC-79."""
    masked = (await seen(text, pii_redact(pii_type, "mask"))).text
    assert masked == text[0] + "\u2022" * (len(text) - 1)
    assert (await seen(masked, pii_redact(pii_type, "redact"))).text == masked


@pytest.mark.parametrize("strategy", ["redact", "mask"])
async def test_what_was_put_there_is_not_found_again_by_a_detector_that_would(strategy: Any) -> None:
    """AC-79."""
    words = pii_redact("word", strategy, r"\S+")
    once = (await seen("some words", words)).text
    assert (await seen(once, words)).text == once


@pytest.mark.parametrize(
    ("pii_type", "text", "digest"),
    [("email", MAIL, "ff8d9819fc0e12bf"), ("credit_card", CARD, "9bbef19476623ca5"), ("ip", IP, "f5047344122f0dee")],
)
async def test_hash_is_the_bare_beginning_of_sha256(pii_type: str, text: str, digest: str) -> None:
    """AC-80."""
    assert (await seen(f"<{text}>", pii_redact(pii_type, "hash"))).text == f"<{digest}>"


async def test_a_key_makes_another_hash_and_is_not_shown() -> None:
    """AC-80."""
    keyed = pii_redact("email", "hash", hash_key="pepper")
    assert (await seen(MAIL, keyed)).text == "e58e539ebd6f4e2a"
    assert "pepper" not in repr(keyed)


async def test_a_blocked_input_ends_the_run_with_type_and_count_alone() -> None:
    """AC-81."""
    model = ScriptedModel(["unreached"])
    with pytest.raises(AgentRunFailed) as caught:
        await MemoryRuntime(agent(model, pii_redact("email", "block")), f"{MAIL} and bob@x.com").result()
    assert (caught.value.code, caught.value.message) == (
        "REJECTED",
        "PII blocked: a message to the model held email (2)",
    )
    assert model.requests == []


async def test_a_blocked_answer_ends_the_run_and_no_retry_touches_it() -> None:
    """AC-81."""
    model = ScriptedModel([f"write to {MAIL}", "unreached"])
    with pytest.raises(AgentRunFailed, match=r"REJECTED: PII blocked: an answer of the model held email \(1\)"):
        await run(model, model_retry(3, 1, on_failure="continue"), pii_redact("email", "block"))
    assert len(model.requests) == 1


async def test_the_verdict_on_a_block_is_that_it_is_final() -> None:
    """AC-81."""
    with pytest.raises(ToolRejection) as caught:
        await seen(MAIL, pii_redact("email", "block"))
    assert get_retryable(caught.value) is False


async def test_a_blocked_result_of_a_tool_is_a_rejection_without_the_value_and_the_run_goes_on() -> None:
    """AC-81."""
    result = await run([call("lookup", who="a"), "done"], pii_redact("email", "block"), tools=[lookup])
    assert (result.output, statuses(result.messages)) == ("done", ["rejected"])
    assert texts(result.messages) == ["PII blocked: lookup ran, but its result is withheld: it held email (1)"]


async def test_blocked_arguments_reject_the_call_and_are_taken_out_of_the_transcript() -> None:
    """AC-81, AC-84."""
    ran: list[str] = []

    @tool
    def post(text: str) -> str:
        """Post."""
        ran.append(text)
        return "posted"

    hook = pii_redact("email", "block", apply_to_tool_args=True)
    result = await run([call("post", text=MAIL), "done"], hook, tools=[post])
    assert (ran, statuses(result.messages)) == ([], ["rejected"])
    assert MAIL not in str(result.messages)


async def test_input_output_and_tool_results_are_covered_by_default() -> None:
    """AC-77."""
    model = ScriptedModel([call("lookup", who="her"), f"it is {MAIL}"])
    result = await MemoryRuntime(agent(model, pii_redact("email"), tools=[lookup]), f"I am {MAIL}").result()
    assert [message.text for message in model.requests[1].messages if message.role == "user"] == [
        "I am [REDACTED_EMAIL]"
    ]
    assert texts(result.messages) == ["her is [REDACTED_EMAIL]"]
    assert result.output == "it is [REDACTED_EMAIL]"


@pytest.mark.parametrize(
    ("off", "leaks"),
    [("apply_to_input", "user"), ("apply_to_output", "assistant"), ("apply_to_tool_results", "tool")],
)
async def test_each_way_can_be_switched_off(off: str, leaks: str) -> None:
    """AC-77."""
    model = ScriptedModel([call("lookup", who="her"), f"it is {MAIL}"])
    options: dict[str, Any] = {off: False}
    run = MemoryRuntime(agent(model, pii_redact("email", **options), tools=[lookup]), f"I am {MAIL}")
    result = await run.result()
    shown = (*model.requests[1].messages, result.messages[-1])
    assert {message.role for message in shown if MAIL in str(message)} == {leaks}


async def test_the_developers_system_prompt_stays() -> None:
    """AC-77."""
    model = ScriptedModel(["done"])
    await run(model, pii_redact("email"), instructions=f"Refer to {MAIL}")
    assert model.requests[0].messages[0] == system(f"Refer to {MAIL}")


async def test_every_message_is_covered_not_only_the_newest_and_each_stays_its_own() -> None:
    """AC-77, D51."""
    earlier = (user(f"1 {MAIL}"), assistant(f"2 {MAIL}"), user("3"))
    model = ScriptedModel(["done"])
    await MemoryRuntime(agent(model, pii_redact("email")), f"4 {MAIL}", messages=earlier).result()
    shown = [message.text for message in model.requests[0].messages]
    assert shown == ["1 [REDACTED_EMAIL]", "2 [REDACTED_EMAIL]", "3", "4 [REDACTED_EMAIL]"]


async def test_the_transcript_keeps_what_the_user_wrote() -> None:
    """AC-89: the scope guard."""
    result = await MemoryRuntime(agent(["done"], pii_redact("email")), MAIL).result()
    assert result.messages[0].text == MAIL


async def test_at_the_edges_the_transcript_never_holds_what_the_user_wrote() -> None:
    """AC-89."""
    run = MemoryRuntime(agent(["one", "two"], pii_redact("email", at_edges=True)), MAIL, messages=[user(f"hi {MAIL}")])
    run.send(f"and {MAIL}")
    result = await run.result()
    assert MAIL not in result.model_dump_json()
    assert sum("[REDACTED_EMAIL]" in message.text for message in result.messages) == 3


async def test_messages_without_a_match_stay_the_same_objects() -> None:
    request = ModelRequest(messages=(user("a"), user(MAIL), user("b")))
    changed = await run_before_model([pii_redact("email")], request, HookContext())
    assert [new is old for new, old in zip(changed.messages, request.messages, strict=True)] == [True, False, True]


async def test_a_tool_gets_the_real_arguments_and_watchers_do_not() -> None:
    """AC-84, D52: the model sees its own arguments again, so that it does not copy placeholders into the next call."""
    got: list[str] = []

    @tool
    def mail(to: str) -> str:
        """Mail."""
        got.append(to)
        return "sent"

    model = ScriptedModel([call("mail", to=MAIL), call("mail", to=MAIL), "done"])
    run = MemoryRuntime(agent(model, pii_redact("email"), tools=[mail]), "go")
    await run.result()
    assert got == [MAIL, MAIL]
    assert model.requests[1].messages[1].tool_calls[0].parse_args()[0] == {"to": MAIL}
    started = [event.data["args"] for event in run.events if event.kind == "tool.started"]
    assert started == [{"to": "[REDACTED_EMAIL]"}] * 2


async def test_an_approver_sees_what_will_run() -> None:
    """AC-84: shown is what is executed; only the events are redacted."""
    run = MemoryRuntime(
        agent(
            [call("lookup", who=MAIL), "done"], pii_redact("email"), human_in_the_loop({"lookup": True}), tools=[lookup]
        ),
        "go",
    )
    with pytest.raises(RunSuspended):
        await run.result()
    assert run.pending[0].args == {"who": MAIL}
    assert MAIL not in str(run.events)
    run.decide("lookup", {"reject": f"not {MAIL}"})
    assert texts((await run.result()).messages) == ["not [REDACTED_EMAIL]"]


async def test_arguments_are_redacted_for_the_tool_too_where_asked() -> None:
    """AC-84: keys and whole numbers as well, and the text stays JSON."""
    got: list[Any] = []

    @tool
    def note(fields: dict[str, Any]) -> str:
        """Note."""
        got.append(fields)
        return "noted"

    fields = {"who": [MAIL, 1, True, None], MAIL: "x", "quote": '"'}
    await run([call("note", fields=fields), "done"], pii_redact("email", apply_to_tool_args=True), tools=[note])
    assert got == [{"who": ["[REDACTED_EMAIL]", 1, True, None], "[REDACTED_EMAIL]": "x", "quote": '"'}]
    card = call("note", fields={"card": int(CARD)})
    await run([card, "done"], pii_redact("credit_card", apply_to_tool_args=True), tools=[note])
    assert got[1] == {"card": "[REDACTED_CREDIT_CARD]"}


async def test_content_blocks_keep_their_shape_their_ids_and_their_signatures() -> None:
    """AC-85, D50."""
    extra = json.dumps({"cache_control": {"type": "ephemeral"}})
    image = MediaBlock(data="aGk=", mime_type="image/png")
    url = MediaBlock(media="file", source="url", data=f"https://x.com/{MAIL}", name=f"{MAIL}.pdf")
    message = Message(
        role="user",
        id="m1",
        pinned=True,
        blocks=(TextBlock(text=MAIL, extra=extra, signature="s"), image, url, RefusalBlock(text=MAIL)),
    )
    changed = await seen(message, pii_redact("email"))
    redacted = (
        TextBlock(text="[REDACTED_EMAIL]", extra=extra, signature="s"),
        image,
        url.replace(name="[REDACTED_EMAIL]"),
        RefusalBlock(text="[REDACTED_EMAIL]"),
    )
    assert changed == message.replace(blocks=redacted)


@pytest.mark.parametrize("at_edges", [False, True])
async def test_signed_reasoning_is_never_edited(at_edges: bool) -> None:
    """AC-85: it is left as it is, or, at the edges, dropped whole."""
    signed = ReasoningBlock(text=f"she is {MAIL}", signature="sig")
    sealed = OpaqueBlock(provider="openai", raw=json.dumps({"query": MAIL}))
    clean = ReasoningBlock(text="hm", signature="sig2")
    blocks = (signed, sealed, clean, ReasoningBlock(text=MAIL, summary=(MAIL,)), TextBlock(text=MAIL))
    unsigned = ReasoningBlock(text="[REDACTED_EMAIL]", summary=("[REDACTED_EMAIL]",))
    kept = (clean, unsigned, TextBlock(text="[REDACTED_EMAIL]"))
    result = await run([assistant(blocks)], pii_redact("email", at_edges=at_edges))
    assert result.messages[1].blocks == (kept if at_edges else (signed, sealed, *kept))


async def test_a_match_across_neighbouring_texts_is_found_and_so_is_one_that_the_next_text_hides() -> None:
    """AC-85: citations split texts anywhere."""
    parts = [TextBlock(text="to alice@exam"), TextBlock(text="ple.com, bye")]
    assert [block.text for block in (await seen(user(parts), pii_redact("email"))).blocks if block.kind == "text"] == [
        "to [REDACTED_EMAIL]",
        ", bye",
    ]
    parts = [TextBlock(text=CARD), TextBlock(text="2 apples")]
    assert (await seen(user(parts), pii_redact("credit_card"))).text == "[REDACTED_CREDIT_CARD]2 apples"


STACK = [
    pii_redact("email"),
    pii_redact("ip", "mask"),
    pii_redact("credit_card", "hash"),
    pii_redact("url", detector=r"https?://\S+"),
]
TEXT = f"see https://{IP}/{MAIL} or 10.0.0.1@example.com, {CARD}, {IP}"


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_the_order_of_stacked_instances_changes_nothing_and_the_longest_match_wins(
    order: tuple[int, ...],
) -> None:
    """AC-86."""
    model = ScriptedModel([TEXT])
    result = await MemoryRuntime(agent(model, *(STACK[index] for index in order)), TEXT).result()
    expected = "see [REDACTED_URL] or [REDACTED_EMAIL], 9bbef19476623ca5, 1\u2022\u2022\u2022\u2022\u2022\u2022\u2022"
    assert model.requests[0].messages[0].text == result.output == expected


async def test_what_a_longer_match_leaves_of_a_shorter_one_is_replaced_too() -> None:
    """AC-86."""
    left, right = pii_redact("left", detector="abcdef"), pii_redact("right", detector="efgh")
    model = ScriptedModel(["done"])
    await MemoryRuntime(agent(model, right, left), "-abcdefgh-").result()
    assert model.requests[0].messages[0].text == "-[REDACTED_LEFT][REDACTED_RIGHT]-"


@given(st.text("ab1.@:- \u2022", max_size=40), st.sampled_from(["redact", "mask"]))
async def test_a_second_pass_changes_nothing(text: str, strategy: Any) -> None:
    """AC-79, AC-86."""
    hooks = [pii_redact(kind, strategy) for kind in ("email", "ip", "credit_card")]
    edge = hooks[-1].edge_filter(hooks)
    assert edge is not None
    first = MemoryRuntime(agent([text or "x"], *hooks), "go")
    once = (await first.result()).output
    again = MemoryRuntime(agent([once or "x"], *hooks), "go")
    assert (await again.result()).output == once


@pytest.mark.parametrize("spans", [[(2, 4)], [{"start": 2, "end": 4, "value": "cd"}], [(2, 4), (3, 3)]])
async def test_a_function_may_give_spans(spans: Any) -> None:
    """D53: spans of no length are none."""
    assert (await seen("abcdef", pii_redact("x", detector=lambda text: spans))).text == "ab[REDACTED_X]ef"


@pytest.mark.parametrize("spans", [[(2, 99)], [(-1, 2)], [(3, 1)], [("a", "b")]])
async def test_a_function_that_gives_something_else_is_told(spans: Any) -> None:
    with pytest.raises(TypeError, match="a detector must give"):
        await seen("abcdef", pii_redact("x", detector=lambda text: spans))


async def test_errors_of_tools_and_results_that_no_tool_gave_are_covered() -> None:
    """AC-77: a sub-agent's answer, an exception."""
    writer = SubAgent(name="writer", description="writes")
    team = create_sub_agent_middleware(ScriptedModel([f"ask {MAIL}"]), [writer])
    task = call("task", description="t", subagent_type="writer")
    result = await run([task, call("broken"), "done"], team, pii_redact("email"), tools=[broken])
    assert MAIL not in result.model_dump_json()
    assert texts(result.messages)[1] == "broken failed: LookupError: no [REDACTED_EMAIL]"


async def test_blocks_of_a_tools_result_keep_their_kinds() -> None:
    """AC-85."""

    @tool
    def page() -> list[Any]:
        """A page."""
        return [TextBlock(text=MAIL), MediaBlock(data="aGk="), TextBlock(text="x")]

    result = await run([call("page"), "done"], pii_redact("email"), tools=[page])
    kinds = [part.kind for part in result.messages[2].tool_results[0].content]
    assert (kinds, texts(result.messages)) == (["text", "media", "text"], ["[REDACTED_EMAIL]x"])


async def test_a_hook_between_two_instances_is_covered_by_the_last() -> None:
    """AC-86: several act as one, at the place of the last."""

    def add(request: ModelRequest, ctx: HookContext) -> ModelRequest:
        return request.replace(messages=(*request.messages, user(f"from {IP}")))

    model = ScriptedModel(["done"])
    await run(model, pii_redact("ip"), create_middleware("add", before_model=add), pii_redact("email"))
    assert model.requests[0].messages[-1].text == "from [REDACTED_IP]"


def test_a_result_that_holds_nothing_is_the_same_object() -> None:
    result = ToolResult(call_id="1", name="t", content="nothing")
    assert pii_redact("email").after_tool(result, HookContext()) is result


@pytest.mark.parametrize(("in_args", "shown"), [(None, {}), (True, {"who": "[REDACTED_X]"})])
async def test_a_function_of_ones_own_is_not_asked_about_events_so_arguments_stay_out_of_them(
    in_args: bool | None, shown: dict[str, str]
) -> None:
    """AC-84, AC-87: unless an activity has redacted them."""
    own = pii_redact("x", detector=lambda text: [(0, len(text))] if text == "alice" else [], apply_to_tool_args=in_args)
    run = MemoryRuntime(agent([call("lookup", who="alice"), "done"], own, tools=[lookup]), "go")
    await run.result()
    assert [event.data["args"] for event in run.events if event.kind == "tool.started"] == [shown]


async def test_a_very_long_event_is_withheld_where_a_pattern_of_ones_own_would_have_to_read_it() -> None:
    """AC-87."""
    run = MemoryRuntime(agent(["x" * 60_000], pii_redact("x", detector="EMP-[0-9]{6}")), "go")
    await run.result()
    [event] = [event for event in run.events if event.kind == "text"]
    assert event.data["withheld"].endswith(" characters")
