"""AC-37 to AC-42, D33 to D37: the next model goes on where the first failed, with a request that it can read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast import Agent, AgentError, AgentOptions, HitlInterrupt, HookContext, create_middleware, tool
from outlast import models as provider_models
from outlast.errors import AgentRunFailed, AgentRunPaused, AuthenticationFailed, RateLimited, ServerFault, UnknownModel
from outlast.messages import Json, Message, OpaqueBlock, TextBlock
from outlast.middleware import model_call_limit, model_fallback, model_retry, pii_redact
from outlast.middleware.contract import ModelNext
from outlast.model import Completion, ModelRequest, ModelSettings
from outlast.models import Anthropic, OpenAIChat
from outlast.testing.memory import MemoryRuntime
from outlast.testing.scripted import ScriptedModel, call, text
from outlast.usage import Usage
from tests.providers.fake_server import FakeServer, Reply, json_reply, running
from tests.unit.middleware.agents import agent, run


@tool
def charge(euros: int) -> str:
    """Charge."""
    CHARGED.append(euros)
    return "charged"


CHARGED: list[int] = []


def spare(*replies: Any) -> ScriptedModel:
    return ScriptedModel(replies, name="other:spare")


async def test_while_the_primary_works_no_fallback_is_asked() -> None:
    """AC-37."""
    second = spare("from second")
    assert (await run(["from first"], model_fallback(second))).output == "from first"
    assert second.requests == []


async def test_the_first_fallback_that_works_answers() -> None:
    """AC-37."""
    second, third, fourth = spare(ServerFault("2")), spare("from third"), spare("from fourth")
    assert (await run([RateLimited("1")], model_fallback(second, third, fourth))).output == "from third"
    assert [len(model.requests) for model in (second, third, fourth)] == [1, 1, 0]


async def test_when_all_fail_the_last_error_comes_out_as_the_same_object() -> None:
    """AC-37."""
    last, seen = ServerFault("last"), list[BaseException]()

    async def watch(request: ModelRequest, call_next: ModelNext, ctx: HookContext) -> Completion:
        try:
            return await call_next(request)
        except ServerFault as error:
            seen.append(error)
            return text("caught")

    hooks = create_middleware("watch", wrap_model=watch), model_fallback(spare(ServerFault("middle")), spare(last))
    await run([ServerFault("first")], *hooks)
    assert seen == [last]


@pytest.mark.parametrize("fatal", [AuthenticationFailed("401"), UnknownModel("404"), ValueError("own model's bug")])
async def test_what_no_retry_would_mend_still_goes_to_the_next_model(fatal: Exception) -> None:
    """AC-38."""
    assert (await run([fatal], model_fallback(spare("ok")))).output == "ok"


@pytest.mark.parametrize("control", [AgentError("STOP", "x"), HitlInterrupt("a", {}), asyncio.CancelledError()])
async def test_control_errors_pass_at_once(control: BaseException) -> None:
    """AC-38, D31."""
    second = spare("never")
    with pytest.raises((AgentRunFailed, AgentRunPaused)):
        await run([control], model_fallback(second))
    assert second.requests == []


async def test_a_control_error_of_a_fallback_ends_the_chain_too() -> None:
    third = spare("never")
    with pytest.raises(AgentRunFailed, match="STOP"):
        await run([ServerFault("x")], model_fallback(spare(AgentError("STOP", "x")), third))
    assert third.requests == []


@pytest.mark.parametrize(
    ("given", "named"), [((), "at least one model"), (("",), "is empty"), ((3,), "a fallback must be a text like")]
)
def test_no_model_or_what_is_none_is_refused_when_it_is_made(given: tuple[Any, ...], named: str) -> None:
    """AC-39."""
    with pytest.raises((ValueError, TypeError), match=named):
        model_fallback(*given)


async def test_the_fallback_gets_the_same_messages_tools_format_and_settings() -> None:
    """AC-40."""
    first, second = ScriptedModel([ServerFault("x")], name="one:a"), spare('{"a": 1}')
    schema: dict[str, Json] = {"type": "object"}
    settings = ModelSettings(temperature=0.5)
    await run(
        first, model_fallback(second), tools=[charge], response_format=schema, settings=settings, instructions="Be."
    )
    assert first.requests == second.requests
    assert second.requests[0].response_format is not None


async def test_fields_for_one_provider_do_not_go_to_another_and_do_to_its_own_next_model() -> None:
    """AC-40, D33."""
    settings = ModelSettings(temperature=0.5, extra={"cache_control": {"type": "ephemeral"}})
    marked = Message(
        role="user",
        blocks=(
            TextBlock(text="long text", extra='{"cache_control": {"type": "ephemeral"}}'),
            OpaqueBlock(provider="one", raw="{}"),
        ),
    )
    first = ScriptedModel([ServerFault("x")], name="one:large")
    same, other = ScriptedModel([ServerFault("x")], name="one:small"), spare("ok")
    only = Agent(AgentOptions(name="a", model=first, middleware=[model_fallback(same, other)], settings=settings))
    await MemoryRuntime(only, messages=[marked]).result()
    assert first.requests == same.requests
    [request] = other.requests
    assert request.settings == ModelSettings(temperature=0.5)
    assert request.messages[0].blocks == (TextBlock(text="long text"),)


async def test_the_served_model_and_all_usage_are_recorded() -> None:
    """AC-41."""

    async def spoil(request: ModelRequest, call_next: ModelNext, ctx: HookContext) -> Completion:
        answer = await call_next(request)
        if answer.model == "scripted":
            raise ServerFault("the answer was unusable")
        return answer

    served = text("ok", usage=Usage(input_tokens=7, output_tokens=1)).model_copy(update={"model": "spare-2026"})
    hooks = model_fallback(spare(served)), create_middleware("spoil", wrap_model=spoil)
    memory = MemoryRuntime(agent(["spoiled"], *hooks), "go")
    result = await memory.result()
    assert [event.data["model"] for event in memory.events if event.kind == "model.completed"] == ["spare-2026"]
    assert result.usage == Usage(input_tokens=17, output_tokens=6, model_calls=2)
    assert result.steps == 1


async def test_what_the_failed_call_has_used_up_counts_too() -> None:
    """AC-41: where its provider told it; a blocked answer of pii_redact has been paid for as well."""
    spent = Usage(input_tokens=70, output_tokens=2)
    served = text("ok", usage=Usage(input_tokens=7, output_tokens=1))
    result = await run([ServerFault("broke off", usage=spent)], model_fallback(spare(served)))
    assert result.usage == Usage(input_tokens=77, output_tokens=3, model_calls=2)
    blocked = MemoryRuntime(agent([text("to bob@x.com", usage=spent)], pii_redact("email", "block")), "go")
    with pytest.raises(AgentRunFailed, match="REJECTED"):
        await blocked.result()
    assert blocked.state.usage == spent.model_copy(update={"model_calls": 1})


async def test_a_failure_on_turn_three_falls_back_and_goes_on_from_the_transcript() -> None:
    """D36, D37, D45: no tool runs again."""
    CHARGED.clear()
    first = ScriptedModel([call("charge", euros=1), call("charge", euros=2), RateLimited("429"), "first again"])
    second = spare(call("charge", euros=3))
    result = await run(first, model_fallback(second), tools=[charge])
    assert CHARGED == [1, 2, 3]
    assert second.requests[0].messages == first.requests[2].messages
    assert result.output == "first again"
    assert [call.id for message in result.messages for call in message.tool_calls] == [
        "call_1_1",
        "call_2_1",
        "call_3_1",
    ]


async def test_a_retry_registered_inside_retries_every_model() -> None:
    second = spare(ServerFault("x"), "ok")
    first = ScriptedModel([ServerFault("x")] * 2)
    assert (await run(first, model_fallback(second), model_retry(1))).output == "ok"
    assert (len(first.requests), len(second.requests)) == (2, 2)


async def test_a_retry_outside_repeats_the_whole_chain() -> None:
    first, second = ScriptedModel([ServerFault("x"), "ok"]), spare(ServerFault("x"))
    assert (await run(first, model_retry(1), model_fallback(second))).output == "ok"


async def test_a_call_limit_is_no_failure_to_fall_back_from() -> None:
    """AC-45."""
    second = spare("never")
    with pytest.raises(AgentRunFailed, match="BUDGET_EXCEEDED"):
        await run(["never"], model_fallback(second), model_retry(), model_call_limit(0))
    assert second.requests == []


async def test_the_agents_own_model_is_asked_first_again_in_the_next_step() -> None:
    first = ScriptedModel([ServerFault("x"), "first is back"])
    assert (await run(first, model_fallback(spare(call("charge", euros=1))), tools=[charge])).output == "first is back"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeServer]:
    monkeypatch.setenv("NO_PROXY", "*")
    async with running() as fake:
        yield fake
        await provider_models.close()


def thought(content: list[Json], stop: str) -> Reply:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": content}
    return json_reply({**message, "stop_reason": stop, "usage": usage})


def chat(content: str) -> Reply:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    return json_reply({"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [choice]})


SIGNED = [
    {"type": "thinking", "thinking": "hm", "signature": "SIGNATURE"},
    {"type": "tool_use", "id": "toolu_1", "name": "charge", "input": {"euros": 1}},
]


async def test_on_the_wire_cache_markers_and_signatures_stay_with_their_provider(server: FakeServer) -> None:
    """AC-40, D33, D34: not sent to the other provider, still sent when the first is used again."""
    broken = json_reply({"type": "error", "error": {"type": "api_error", "message": "x"}}, 500)
    call_again = {"id": "c2", "type": "function", "function": {"name": "charge", "arguments": '{"euros": 2}'}}
    asks = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [call_again]}}
    other = json_reply({"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt", "choices": [asks]})
    server.answer(thought(SIGNED, "tool_use"), broken, other, thought([{"type": "text", "text": "done"}], "end_turn"))
    claude = Anthropic("claude-sonnet-5", api_key="k", base_url=server.url)
    gpt = OpenAIChat("gpt-5.2", api_key="k", base_url=f"{server.url}/v1")
    settings = ModelSettings(extra={"cache_control": {"type": "ephemeral"}})
    result = await run(claude, model_fallback(gpt), tools=[charge], settings=settings)
    first, failed, fallen, again = (received.body.decode() for received in server.received)
    assert result.output == "done"
    assert all("cache_control" in body for body in (first, failed, again))
    assert all("SIGNATURE" in body for body in (failed, again))
    assert "cache_control" not in fallen
    assert "SIGNATURE" not in fallen
    assert "hm" not in fallen


async def test_an_answer_that_breaks_off_leaves_no_half_text(server: FakeServer) -> None:
    """AC-42, D35: with a wrap_model nothing is shown before the call has succeeded."""
    whole = thought([{"type": "text", "text": "half of it"}], "end_turn").chunks[0]
    server.answer(Reply([whole[: len(whole) // 2]], cut=True), chat("the fallback's answer"))
    claude = Anthropic("claude-sonnet-5", api_key="k", base_url=server.url)
    gpt = OpenAIChat("gpt-5.2", api_key="k", base_url=f"{server.url}/v1")
    result = await run(claude, model_fallback(gpt))
    assert [message.text for message in result.messages] == ["go", "the fallback's answer"]
