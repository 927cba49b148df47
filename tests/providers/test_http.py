"""The wire compared with the official SDKs', and how connections live."""

from __future__ import annotations

import asyncio

import pytest

from outlast import models
from outlast.model import ModelRequest

from .answers import ANSWERS
from .fake_server import FakeServer, json_reply, running, sse_reply
from .providers import PROVIDERS
from .sdks import ask_sdk
from .streams import stream_text
from .test_answers import HI

_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "anthropic-version", "content-type")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_same_question_looks_on_the_wire_as_the_official_sdk_sends_it(
    server: FakeServer, provider: str, stream: bool
) -> None:
    answer = ANSWERS[provider]["text"]
    server.answer(sse_reply(stream_text(provider, answer)) if stream else json_reply(answer))
    await PROVIDERS[provider](server.url).complete(HI, (lambda delta: None) if stream else None)
    await ask_sdk(provider, server.url, stream=stream)
    ours, theirs = server.received
    assert (ours.method, ours.path) == (theirs.method, theirs.path)
    assert ours.json == theirs.json
    assert {n: ours.headers.get(n) for n in _HEADERS} == {n: theirs.headers.get(n) for n in _HEADERS}


async def test_an_error_of_the_receiver_of_deltas_is_not_blamed_on_the_provider(server: FakeServer) -> None:
    server.answer(sse_reply(stream_text("openai_chat", ANSWERS["openai_chat"]["text"])))

    def sink(delta: object) -> None:
        raise RuntimeError("the sink broke")

    with pytest.raises(RuntimeError, match="the sink broke"):
        await PROVIDERS["openai_chat"](server.url).complete(HI, sink)


async def test_a_cancelled_call_closes_its_connection(server: FakeServer) -> None:
    server.answer(json_reply({}).__class__([b"{}"], delay=5.0))
    task = asyncio.ensure_future(PROVIDERS["openai_chat"](server.url).complete(HI))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.answer(json_reply(ANSWERS["openai_chat"]["text"]))
    assert (await PROVIDERS["openai_chat"](server.url).complete(HI)).finish == "stop"


async def test_a_hundred_calls_at_once_are_a_hundred_requests(server: FakeServer) -> None:
    server.answer(json_reply(ANSWERS["openai_chat"]["text"]))
    model = PROVIDERS["openai_chat"](server.url)
    answers = await asyncio.gather(*(model.complete(HI) for _ in range(100)))
    assert len(answers) == len(server.received) == 100


def test_each_event_loop_has_its_own_client() -> None:
    async def once() -> str:
        async with running() as server:
            server.answer(json_reply(ANSWERS["openai_chat"]["text"]))
            completion = await PROVIDERS["openai_chat"](server.url).complete(ModelRequest(messages=HI.messages))
            await models.close()
            return completion.finish

    assert [asyncio.run(once()), asyncio.run(once())] == ["stop", "stop"]


async def test_closing_twice_does_no_harm() -> None:
    await models.close()
    await models.close()
