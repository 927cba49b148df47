"""Every way a call can fail: the class, the verdict, the wait hint, one request, and nothing private in the text."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping

import pytest

from outlast.errors import (
    AuthenticationFailed,
    ConnectionFault,
    ContentBlocked,
    ContextOverflow,
    InvalidRequest,
    MalformedResponse,
    ModelError,
    ModelTimeout,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    ServerFault,
    UnknownModel,
    get_retryable,
)
from outlast.messages import Json, user
from outlast.model import ModelRequest
from outlast.models import Anthropic, OpenAIChat
from outlast.models._faults import wait_hint

from .answers import ANSWERS
from .fake_server import FakeServer, Reply, json_reply, sse_reply
from .providers import KEY, PROVIDERS
from .streams import stream_text
from .test_answers import HI


def _openai(message: str, type: str = "invalid_request_error", code: Json = None) -> Json:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


def _anthropic(type: str, message: str) -> Json:
    return {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}


def _google(code: int, status: str, message: str, *details: Json) -> Json:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


_INVALID_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
_RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "48.5s"}
_TOO_LONG = {
    "error": {
        "code": 400, "message": "request (9000 tokens) exceeds the available context size (8192 tokens)",
        "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192,
    }
}  # fmt: skip
_OVERLOADED = _anthropic("overloaded_error", "Overloaded")

Row = tuple[str, int, Mapping[str, str], Json, type[ModelError], bool | None, float | None]
ROWS: list[Row] = [
    # OpenAI's shape, and servers that imitate it
    ("openai_chat", 401, {}, _openai("Incorrect API key", code="invalid_api_key"), AuthenticationFailed, False, None),
    ("openai_chat", 403, {}, _openai("Country not supported"), AuthenticationFailed, False, None),
    ("openai_chat", 404, {}, _openai("No such model", code="model_not_found"), UnknownModel, False, None),
    ("openai_chat", 429, {"retry-after-ms": "1500"}, _openai("Rate", code="rate_limit_exceeded"),
     RateLimited, True, 1.5),
    ("openai_chat", 429, {"retry-after": "2.5"}, _openai("Rate"), RateLimited, True, 2.5),
    ("openai_chat", 429, {"retry-after": "1", "retry-after-ms": "0"}, _openai("Rate"), RateLimited, True, 1.0),
    ("openai_chat", 429, {"retry-after": "soon"}, _openai("Rate"), RateLimited, True, None),
    ("openai_chat", 429, {"x-should-retry": "false"}, _openai("Rate"), RateLimited, False, None),
    ("openai_chat", 400, {"x-should-retry": "true"}, _openai("Odd"), InvalidRequest, True, None),
    ("openai_chat", 429, {}, _openai("Quota", "insufficient_quota", "insufficient_quota"), QuotaExhausted, False, None),
    ("openai_chat", 400, {}, _openai("Too long", code="context_length_exceeded"), ContextOverflow, False, None),
    ("openai_chat", 400, {}, _openai("Your input exceeds the context window"), ContextOverflow, False, None),
    ("openai_chat", 400, {}, _TOO_LONG, ContextOverflow, False, None),
    ("openai_chat", 400, {}, {"object": "error", "message": "maximum context length is 8 tokens", "code": 400},
     ContextOverflow, False, None),
    ("openai_chat", 400, {}, _openai("Filtered", code="content_filter"), ContentBlocked, False, None),
    ("openai_chat", 400, {}, _openai("Bad schema"), InvalidRequest, False, None),
    ("openai_chat", 413, {}, _openai("Too large"), InvalidRequest, False, None),
    ("openai_chat", 422, {}, {"detail": [{"loc": ["body"], "msg": "bad"}]}, InvalidRequest, False, None),
    ("openai_chat", 408, {}, _openai("Timeout"), ModelTimeout, True, None),
    ("openai_chat", 409, {}, _openai("Conflict"), ServerFault, True, None),
    ("openai_chat", 500, {}, _openai("Oops", "server_error"), ServerFault, True, None),
    ("openai_chat", 502, {}, "<html>Bad gateway</html>", ServerFault, True, None),
    ("openai_chat", 503, {"retry-after": "7"}, {"error": {"message": "Loading model", "type": "unavailable_error",
     "code": 503}}, Overloaded, True, 7.0),
    ("openai_chat", 504, {}, "", ModelTimeout, True, None),
    ("openai_chat", 302, {"location": "/elsewhere"}, "", InvalidRequest, False, None),
    ("openai_chat", 404, {}, {"error": "model 'x' not found"}, UnknownModel, False, None),
    ("openai_responses", 404, {}, _openai("Item with id 'rs_1' not found."), InvalidRequest, False, None),
    # Anthropic's
    ("anthropic", 401, {}, _anthropic("authentication_error", "invalid x-api-key"), AuthenticationFailed, False, None),
    ("anthropic", 403, {}, _anthropic("permission_error", "no"), AuthenticationFailed, False, None),
    ("anthropic", 404, {}, _anthropic("not_found_error", "model: x"), UnknownModel, False, None),
    ("anthropic", 400, {"x-should-retry": "false"},
     _anthropic("invalid_request_error", "prompt is too long: 3333404 tokens > 200000 maximum"),
     ContextOverflow, False, None),
    ("anthropic", 400, {}, _TOO_LONG, ContextOverflow, False, None),
    ("anthropic", 400, {}, _anthropic("invalid_request_error", "Your credit balance is too low"),
     QuotaExhausted, False, None),
    ("anthropic", 402, {}, _anthropic("billing_error", "pay"), QuotaExhausted, False, None),
    ("anthropic", 400, {}, _anthropic("invalid_request_error", "Output blocked by content filtering policy"),
     ContentBlocked, False, None),
    ("anthropic", 400, {}, _anthropic("invalid_request_error", "temperature: Extra inputs"),
     InvalidRequest, False, None),
    ("anthropic", 413, {}, _anthropic("request_too_large", "bytes"), InvalidRequest, False, None),
    ("anthropic", 429, {"retry-after": "30"}, _anthropic("rate_limit_error", "slow"), RateLimited, True, 30.0),
    ("anthropic", 500, {}, _anthropic("api_error", "internal"), ServerFault, True, None),
    ("anthropic", 504, {}, _anthropic("timeout_error", "late"), ModelTimeout, True, None),
    ("anthropic", 529, {}, _OVERLOADED, Overloaded, True, None),
    # Gemini's
    ("gemini", 400, {}, _google(400, "INVALID_ARGUMENT", "API key not valid.", _INVALID_KEY),
     AuthenticationFailed, False, None),
    ("gemini", 403, {}, _google(403, "PERMISSION_DENIED", "no"), AuthenticationFailed, False, None),
    ("gemini", 404, {}, _google(404, "NOT_FOUND", "no model"), UnknownModel, False, None),
    ("gemini", 429, {}, _google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", _RETRY),
     RateLimited, True, 48.5),
    ("gemini", 429, {}, [_google(429, "RESOURCE_EXHAUSTED", "in a list", _RETRY)], RateLimited, True, 48.5),
    ("gemini", 400, {}, _google(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum of tokens"),
     ContextOverflow, False, None),
    ("gemini", 400, {}, _google(400, "INVALID_ARGUMENT", "bad"), InvalidRequest, False, None),
    ("gemini", 500, {}, _google(500, "INTERNAL", "oops"), ServerFault, True, None),
    ("gemini", 503, {}, _google(503, "UNAVAILABLE", "overloaded"), Overloaded, True, None),
    ("gemini", 504, {}, _google(504, "DEADLINE_EXCEEDED", "late"), ModelTimeout, True, None),
]  # fmt: skip


async def failure(server: FakeServer, provider: str, *, stream: bool = False) -> ModelError:
    """The exception of a call to a server that was told what to answer."""
    model = PROVIDERS[provider](server.url)
    with pytest.raises(ModelError) as caught:
        await model.complete(HI, (lambda delta: None) if stream else None)
    assert len(server.received) == 1, "a provider call is never repeated by itself"
    return caught.value


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("provider", "status", "headers", "body", "kind", "verdict", "wait"), ROWS)
async def test_each_error_answer_becomes_its_class_after_one_request(
    server: FakeServer, provider: str, status: int, headers: Mapping[str, str], body: Json, kind: type[ModelError],
    verdict: bool | None, wait: float | None, stream: bool,
) -> None:  # fmt: skip
    text = body if isinstance(body, str) else json.dumps(body)
    server.answer(Reply([text.encode()] if text else [], status, headers))
    error = await failure(server, provider, stream=stream)
    assert type(error) is kind
    assert get_retryable(error) is verdict
    assert error.wait_seconds == wait
    assert error.status == status
    assert str(status) in str(error)
    assert error.provider in str(error)
    assert error.__cause__ is None


STREAMED: list[tuple[str, Json, type[ModelError], float | None]] = [
    ("openai_chat", _openai("The server had an error", "server_error"), ServerFault, None),
    ("openai_chat", {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}},
     Overloaded, None),
    ("openai_responses", {"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, RateLimited, None),
    ("openai_responses", {"type": "error", "error": {"code": "insufficient_quota", "message": "pay"}},
     QuotaExhausted, None),
    ("openai_responses", {"type": "response.failed", "response": {"status": "failed", "error": {
        "code": "server_error", "message": "oops"}}}, ServerFault, None),
    ("openai_responses", {"type": "response.failed", "response": {"status": "failed", "error": {
        "code": "invalid_prompt", "message": "no"}}}, ContentBlocked, None),
    ("openai_responses", {"type": "response.failed", "response": {"status": "failed", "error": None}},
     ServerFault, None),
    ("anthropic", _OVERLOADED, Overloaded, None),
    ("anthropic", _anthropic("api_error", "Internal"), ServerFault, None),
    ("anthropic", _anthropic("invalid_request_error", "bad"), InvalidRequest, None),
    ("gemini", _google(503, "UNAVAILABLE", "overloaded"), Overloaded, None),
    ("gemini", _google(429, "RESOURCE_EXHAUSTED", "quota", _RETRY), RateLimited, 48.5),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "event", "kind", "wait"), STREAMED)
async def test_an_error_inside_a_stream_becomes_its_class(
    server: FakeServer, provider: str, event: Json, kind: type[ModelError], wait: float | None
) -> None:
    begun = stream_text(provider, ANSWERS[provider]["text"]).split("\n\n")[0] + "\n\n"
    server.answer(sse_reply(f"{begun}event: error\ndata: {json.dumps(event)}\n\n"))
    error = await failure(server, provider, stream=True)
    assert type(error) is kind
    assert error.wait_seconds == wait


async def test_an_error_that_comes_with_status_200_is_an_error(server: FakeServer) -> None:
    server.answer(json_reply(_openai("Upstream is overloaded", code="slow_down")))
    assert type(await failure(server, "openai_chat")) is Overloaded


@pytest.mark.parametrize("cut", [False, True], ids=["ended", "connection lost"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_stream_that_stops_in_the_middle_is_a_fault_of_the_server(
    server: FakeServer, provider: str, cut: bool
) -> None:
    whole = stream_text(provider, ANSWERS[provider]["text"])
    server.answer(sse_reply(whole[: len(whole) // 3], cut=cut))
    error = await failure(server, provider, stream=True)
    assert (type(error), get_retryable(error)) == (ServerFault, True)
    assert error.error_class == "TruncatedStream"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_body_that_breaks_off_is_a_fault_of_the_server(server: FakeServer, provider: str) -> None:
    server.answer(Reply([b'{"id": "x'], cut=True))
    assert type(await failure(server, provider)) is ServerFault


@pytest.mark.parametrize("body", [b"hello", b"[]", b'"x"', b"{}", b'{"choices": 3}', b'{"choices": [{"message": 3}]}'])
async def test_an_answer_in_another_format_is_malformed(server: FakeServer, body: bytes) -> None:
    server.answer(Reply([body]))
    error = await failure(server, "openai_chat")
    assert (type(error), get_retryable(error)) == (MalformedResponse, None)


@pytest.mark.parametrize("data", ["hello", "[]", '{"choices": 3}', '{"choices": [{"delta": {"content": 3}}]}'])
async def test_an_event_in_another_format_is_malformed(server: FakeServer, data: str) -> None:
    server.answer(sse_reply(f"data: {data}\n\n"))
    assert type(await failure(server, "openai_chat", stream=True)) is MalformedResponse


async def test_a_body_that_cannot_be_decompressed_is_malformed(server: FakeServer) -> None:
    server.answer(Reply([b"not gzip"], headers={"content-encoding": "gzip"}))
    assert type(await failure(server, "openai_chat")) is MalformedResponse


async def test_no_answer_in_time_is_a_timeout(server: FakeServer) -> None:
    server.answer(Reply([], delay=1.0))
    with pytest.raises(ModelTimeout, match=r"nothing for 0.05 s.*raise the model's timeout") as caught:
        await OpenAIChat("m", api_key=KEY, base_url=f"{server.url}/v1", timeout=0.05).complete(HI)
    assert get_retryable(caught.value) is True


async def test_a_refused_connection_names_the_address() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(ConnectionFault, match=f"127.0.0.1:{port}") as caught:
        await OpenAIChat("m", api_key=KEY, base_url=f"http://127.0.0.1:{port}/v1").complete(HI)
    assert get_retryable(caught.value) is True


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://[", "http://exa mple"])
async def test_a_wrong_address_is_an_invalid_request_or_no_connection(url: str) -> None:
    with pytest.raises((InvalidRequest, ConnectionFault)):
        await OpenAIChat("m", api_key=KEY, base_url=url).complete(HI)


@pytest.mark.parametrize("key", ["line\nbreak", "ключ"])
async def test_a_key_that_no_header_can_hold_is_not_sent_and_not_shown(server: FakeServer, key: str) -> None:
    with pytest.raises(AuthenticationFailed, match="no HTTP header may hold") as caught:
        await Anthropic("m", api_key=key, base_url=server.url).complete(HI)
    assert key not in str(caught.value)
    assert server.received == []


async def test_neither_the_key_nor_the_prompt_is_in_the_text_of_an_error(server: FakeServer) -> None:
    prompt = "My password is correct horse battery staple, keep it."
    echo = f"Invalid content {prompt[3:40]!r} and 'four words' for key {KEY} or sk-proj-abcdef**** (Bearer {KEY})"
    server.answer(json_reply(_openai(echo), 400))
    asked = ModelRequest(messages=(user(prompt), user("four words")))
    with pytest.raises(InvalidRequest, match="Invalid content") as caught:
        await PROVIDERS["openai_chat"](server.url).complete(asked)
    for private in (KEY, "password", "horse", "staple", "four words", "abcdef"):
        assert private not in str(caught.value)


async def test_a_huge_error_body_is_read_and_shown_in_part_only(server: FakeServer) -> None:
    server.answer(Reply([b"oops " * 20_000] * 20, 500))
    error = await failure(server, "openai_chat")
    assert len(str(error)) < 600


async def test_an_error_body_that_breaks_off_still_has_its_status(server: FakeServer) -> None:
    server.answer(Reply([b'{"error": {"mess'], 429, {"retry-after": "3"}, cut=True))
    error = await failure(server, "openai_chat")
    assert (type(error), error.wait_seconds) == (RateLimited, 3.0)


async def test_an_error_names_the_request_and_the_next_step(server: FakeServer) -> None:
    server.answer(
        json_reply(_openai("Incorrect API key provided", code="invalid_api_key"), 401, {"x-request-id": "req_7"})
    )
    error = await failure(server, "openai_chat")
    assert str(error) == (
        "openai:gpt-5.2: access refused [HTTP 401, invalid_api_key, invalid_request_error, req_7]: "
        "Incorrect API key provided. Set a valid key in OPENAI_API_KEY in the worker's environment."
    )
    assert error.error_class == "invalid_api_key"


def test_a_date_is_a_wait_hint_too() -> None:
    headers = {"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}
    now = 1792567680.0  # 07:28:00
    assert wait_hint(headers, now) == pytest.approx(30.0)
    assert wait_hint(headers, now + 60) is None


@pytest.mark.parametrize("value", ["nan", "inf", "-3", "", "99999999999999999999999999 Jan"])
def test_a_senseless_wait_hint_is_none(value: str) -> None:
    assert wait_hint({"retry-after": value}) is None


async def test_a_wait_hint_on_a_success_is_ignored(server: FakeServer) -> None:
    answer: Json = ANSWERS["anthropic"]["text"]
    server.answer(json_reply(answer, headers={"retry-after": "30"}))
    completion = await PROVIDERS["anthropic"](server.url).complete(HI)
    assert completion.finish == "stop"


_STARTED = {
    "type": "message_start",
    "message": {"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 70, "output_tokens": 2}},
}
_FAILED = {
    "id": "r", "status": "failed", "error": {"code": "server_error", "message": "x"}, "output": [],
    "usage": {"input_tokens": 70, "output_tokens": 2},
}  # fmt: skip
_FAILED_EVENT = {"type": "response.failed", "response": _FAILED}


@pytest.mark.parametrize(
    ("provider", "stream", "reply"),
    [
        ("anthropic", True, sse_reply(f"data: {json.dumps(_STARTED)}\n\n")),
        ("anthropic", True, sse_reply(f"data: {json.dumps(_STARTED)}\n\ndata: {json.dumps(_OVERLOADED)}\n\n")),
        ("anthropic", False, json_reply({"type": "message", "usage": {"input_tokens": 70, "output_tokens": 2}})),
        ("openai_responses", False, json_reply(_FAILED)),
        ("openai_responses", True, sse_reply(f"data: {json.dumps(_FAILED_EVENT)}\n\n")),
        ("gemini", True, sse_reply('data: {"usageMetadata": {"promptTokenCount": 70, "candidatesTokenCount": 2}}\n\n')),
        ("openai_chat", False, json_reply({"usage": {"prompt_tokens": 70, "completion_tokens": 2}})),
    ],
)  # fmt: skip
async def test_what_a_failed_answer_has_used_up_is_told(
    server: FakeServer, provider: str, stream: bool, reply: Reply
) -> None:
    """AC-41: an answer that broke off, failed, or cannot be read has been paid for all the same."""
    server.answer(reply)
    found = (await failure(server, provider, stream=stream)).usage
    assert found is not None
    assert (found.input_tokens, found.output_tokens) == (70, 2)


async def test_an_error_that_tells_no_usage_has_none(server: FakeServer) -> None:
    server.answer(json_reply(_OVERLOADED, 529))
    assert (await failure(server, "anthropic")).usage is None
