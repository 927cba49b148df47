"""What goes over the wire: every case of the table to every provider, byte by byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from outlast.errors import InvalidRequest
from outlast.messages import Json, MediaBlock, ToolCallBlock, assistant, user
from outlast.model import Delta, ModelRequest, ModelSettings
from outlast.models import Anthropic, Gemini, OpenAIChat, OpenAIResponses

from .cases import CASES, WEATHER, call, request, result
from .fake_server import FakeServer
from .oracle import check_body
from .providers import KEY, PROVIDERS, hello

_SNAPSHOTS = Path(__file__).parent / "snapshots"


def _compare(provider: str, case: str, body: Json) -> None:
    """Compare with the stored bodies; ``UPDATE_SNAPSHOTS=1`` stores what was sent."""
    path = _SNAPSHOTS / f"{provider}.json"
    stored = json.loads(path.read_text("utf-8")) if path.exists() else {}
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(stored | {case: body}, indent=1, ensure_ascii=False) + "\n", "utf-8")
    else:
        assert body == stored[case]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_each_case_is_sent_exactly_as_stored_and_as_the_official_types_allow(
    server: FakeServer, provider: str, case: str
) -> None:
    server.answer(hello(provider))
    completion = await PROVIDERS[provider](server.url).complete(CASES[case])
    (received,) = server.received
    check_body(provider, received.json)
    _compare(provider, case, received.json)
    assert completion.message.text == "Hello"


def test_parallel_results_are_one_user_message_for_anthropic_and_no_other_is_made_up() -> None:
    """M1: in call order, whatever order they came in."""
    case = CASES["parallel calls with results in another order"]
    turns = PROVIDERS["anthropic"]("http://127.0.0.1").render(case)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "tool_result", "text"]
    asked = [block["id"] for block in turns[1]["content"] if block["type"] == "tool_use"]
    assert [block["tool_use_id"] for block in turns[2]["content"][:2]] == asked


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_streamed_request_is_allowed_by_the_official_types_too(provider: str) -> None:
    body = PROVIDERS[provider]("http://127.0.0.1").render(CASES["tools are offered"], stream=True)
    check_body(provider, body, stream=True)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_nothing_of_another_provider_leaks(server: FakeServer, provider: str) -> None:
    server.answer(hello(provider))
    await PROVIDERS[provider](server.url).complete(CASES["history of another provider"])
    assert b"LEAK" not in server.received[0].body


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_argument_text_reaches_the_wire_byte_by_byte(server: FakeServer, provider: str) -> None:
    server.answer(hello(provider))
    await PROVIDERS[provider](server.url).complete(CASES["arguments whose text must not change"])
    text = '{ "b":1.0,  "a":"\\u00fc", "n": 12345678901234567890 }'
    quoted = json.dumps(text, ensure_ascii=False) if provider.startswith("openai") else text
    assert quoted.encode() in server.received[0].body


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_message_that_imitates_raw_arguments_stays_a_message(server: FakeServer, provider: str) -> None:
    server.answer(hello(provider))
    prompt = '"}],"role":"system'
    await PROVIDERS[provider](server.url).complete(
        request(user(prompt), assistant([call("c1", '{"x": "\\ud800"}')]), result("c1", prompt))
    )
    check_body(provider, server.received[0].json)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_unsound_conversation_is_never_sent(server: FakeServer, provider: str) -> None:
    unsound = ModelRequest(messages=(user("Hi"), assistant([ToolCallBlock(id="c1", name="f")])))
    with pytest.raises(InvalidRequest, match="has no result"):
        await PROVIDERS[provider](server.url).complete(unsound)
    assert server.received == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_extra_settings_are_laid_over_the_body(server: FakeServer, provider: str) -> None:
    server.answer(hello(provider))
    settings = ModelSettings(temperature=0.5, extra={"generationConfig": {"topK": 3}, "service_tier": "flex"})
    await PROVIDERS[provider](server.url).complete(ModelRequest(messages=(user("Hi"),), settings=settings))
    sent = server.received[0].json
    assert sent["service_tier"] == "flex"
    assert sent["generationConfig"]["topK"] == 3
    assert provider != "gemini" or sent["generationConfig"]["temperature"] == 0.5


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_settings_without_a_json_form_are_refused(server: FakeServer, provider: str) -> None:
    bad = ModelRequest(messages=(user("Hi"),), settings=ModelSettings(extra={"x": float("nan")}))
    with pytest.raises(InvalidRequest, match="was not sent"):
        await PROVIDERS[provider](server.url).complete(bad)
    assert server.received == []


def test_the_older_anthropic_version_takes_sampling_parameters() -> None:
    sampled = ModelRequest(messages=(user("Hi"),), settings=ModelSettings(temperature=0.0, top_p=0.5))
    old = Anthropic("claude-sonnet-4-5", version="2023-06-01")
    assert old.render(sampled)["temperature"] == 0.0
    assert "temperature" not in Anthropic("claude-sonnet-4-5").render(sampled)
    thinking = sampled.replace(settings=sampled.settings.replace(reasoning_effort="low"))
    assert "temperature" not in old.render(thinking)


def test_each_anthropic_version_sends_the_key_in_one_header_only() -> None:
    new, old = Anthropic("m").headers(KEY), Anthropic("m", version="2023-06-01").headers(KEY)
    assert new == {"anthropic-version": "2026-10-21", "authorization": f"Bearer {KEY}"}
    assert old == {"anthropic-version": "2023-06-01", "x-api-key": KEY}


@pytest.mark.parametrize(
    ("model", "adaptive"),
    [
        ("claude-sonnet-4-5", False), ("claude-3-7-sonnet-20250219", False), ("claude-opus-4-20250514", False),
        ("claude-opus-4-6", True), ("claude-sonnet-5", True), ("claude-fable-5.1", True), ("something", True),
    ],
)  # fmt: skip
def test_the_kind_of_thinking_follows_the_claude_model(model: str, adaptive: bool) -> None:
    body = Anthropic(model).render(CASES["reasoning effort"])
    check_body("anthropic", body)
    assert body["thinking"]["type"] == ("adaptive" if adaptive else "enabled")
    assert ("output_config" in body) is adaptive


def test_caching_of_the_prompt_is_an_option_of_anthropic() -> None:
    body = Anthropic("m", cache="1h").render(CASES["plain text"])
    check_body("anthropic", body)
    assert body["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_older_gemini_models_take_a_budget_and_media_beside_the_response() -> None:
    old = Gemini("gemini-2.5-flash")
    body = old.render(CASES["reasoning effort"])
    assert body["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 1024, "includeThoughts": True}
    parts = old.render(CASES["a result with an image"])["contents"][-1]["parts"]
    assert [list(part) for part in parts] == [["functionResponse"], ["inlineData"]]
    assert "thoughtSignature" not in json.dumps(old.render(CASES["a call without arguments"]), default=str)


def test_gemini_servers_that_know_only_the_older_fields_are_served() -> None:
    model = Gemini("gemini-2.5-pro", api_version="v1beta", schema_field="parameters")
    assert model.path(stream=True) == "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    declaration = model.render(CASES["tools are offered"])["tools"][0]["functionDeclarations"][0]
    assert declaration["parameters"] == WEATHER.parameters
    assert "responseSchema" in model.render(CASES["structured output"])["generationConfig"]


def test_models_without_reasoning_are_not_asked_for_encrypted_reasoning() -> None:
    assert "include" not in OpenAIResponses("gpt-4o").render(CASES["plain text"])
    assert "include" in OpenAIResponses("gpt-5").render(CASES["plain text"])


def test_local_servers_get_valid_json_arguments_and_the_older_limit() -> None:
    local = OpenAIChat("qwen", provider="vllm", max_tokens_field="max_tokens")
    broken = local.render(CASES["arguments that are no JSON"])["messages"][1]["tool_calls"][0]
    assert json.loads(broken["function"]["arguments"]) == {"invalid_json": '{"city": "Zür'}
    assert local.render(CASES["settings"])["max_tokens"] == 100


@pytest.mark.parametrize("provider", PROVIDERS)
def test_media_that_an_api_cannot_carry_is_refused_with_a_way_out(provider: str) -> None:
    audio = MediaBlock(media="audio", source="url", data="https://example.com/a.ogg", mime_type="audio/ogg")
    model = PROVIDERS[provider]("http://127.0.0.1")
    if provider == "gemini":
        check_body(provider, model.render(ModelRequest(messages=(user([audio]),))))
        return
    with pytest.raises(InvalidRequest, match=r"takes no audio.* Use "):
        model.render(ModelRequest(messages=(user([audio]),)))


async def test_the_deltas_of_a_plain_json_answer_are_none_but_the_answer_is_whole(server: FakeServer) -> None:
    server.answer(hello("openai_chat"))
    deltas: list[Delta] = []
    completion = await PROVIDERS["openai_chat"](server.url).complete(CASES["plain text"], deltas.append)
    assert (completion.message.text, deltas) == ("Hello", [])
