"""The only module of the package that speaks HTTP: one POST, never a retry, every failure a :class:`ModelError`.

One client per event loop is shared by all models of a process. Time-outs: 10 s to connect; the model's
``timeout`` for every wait for a byte. Retrying is the job of ``model_retry``, on durable timers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from weakref import WeakKeyDictionary

import httpx
from httpx_sse import EventSource

from outlast.errors import ConnectionFault, InvalidRequest, ModelError, ModelTimeout
from outlast.messages import Json
from outlast.models._endpoint import Call
from outlast.models._faults import Failure

_CONNECT_SECONDS = 10.0
_ERROR_BODY_BYTES = 64 * 1024
_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()


async def post(call: Call) -> dict[str, Json]:
    """The decoded JSON object that answers a call.

    Raises:
        ModelError: Any failure.
    """
    async with _opened(call) as response:
        return _decoded(call, await response.aread())


async def stream(call: Call, feed: Callable[[dict[str, Json]], None]) -> dict[str, Json] | None:
    """Feed every event of a streamed answer; the body instead, if the server answered with plain JSON.

    Raises:
        ModelError: Any failure, an error event of the provider among them.
    """
    async with _opened(call) as response:
        if "text/event-stream" not in response.headers.get("content-type", ""):
            return _decoded(call, await response.aread())
        async with aclosing(EventSource(response).aiter_sse()) as events:
            async for event in events:
                if event.data.strip() == "[DONE]":
                    break
                if event.data:
                    payload = _decoded(call, event.data)
                    if payload.get("error") or payload.get("type") == "error":
                        raise call.reporter.event(payload)
                    feed(payload)
    return None


async def close() -> None:
    """Close the running event loop's connections; the next call opens new ones."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.aclose()


def _client() -> httpx.AsyncClient:
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None or client.is_closed:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        client = httpx.AsyncClient(limits=limits, headers={"user-agent": "outlast"})
        _clients[loop] = client
    return client


@asynccontextmanager
async def _opened(call: Call) -> AsyncIterator[httpx.Response]:
    started = False
    try:
        async with _client().stream(
            "POST",
            call.url,
            content=call.body,
            headers={"content-type": "application/json", **call.headers},
            timeout=httpx.Timeout(call.timeout, connect=min(_CONNECT_SECONDS, call.timeout)),
        ) as response:
            started = True
            if not response.is_success:
                raise call.reporter.answered(response.status_code, response.headers, await _error_text(response))
            yield response
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise _translated(call, error, started) from None


def _translated(call: Call, error: Exception, started: bool) -> ModelError:
    name = type(error).__name__
    if isinstance(error, httpx.TimeoutException):
        seconds = min(_CONNECT_SECONDS, call.timeout) if isinstance(error, httpx.ConnectTimeout) else call.timeout
        return call.reporter.build(ModelTimeout, Failure(names=(name,), detail=f"nothing for {seconds:g} s"))
    if isinstance(error, httpx.DecodingError):
        return call.reporter.malformed("the body could not be decompressed")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return call.reporter.build(InvalidRequest, Failure(names=(name,), detail=str(error)))
    if started:
        return call.reporter.truncated()
    host = httpx.URL(call.url).netloc.decode("ascii", "replace").rpartition("@")[2]
    return call.reporter.build(ConnectionFault, Failure(names=(name,), detail=f"{host}: {error}"))


async def _error_text(response: httpx.Response) -> str:
    body = b""
    try:
        async with aclosing(response.aiter_bytes()) as chunks:  # type: ignore[type-var]  # annotated as a bare iterator
            async for chunk in chunks:
                body += chunk
                if len(body) >= _ERROR_BODY_BYTES:
                    break
    except httpx.HTTPError:
        pass  # the status is known; half a body is better than none
    return body[:_ERROR_BODY_BYTES].decode("utf-8", "replace")


def _decoded(call: Call, text: str | bytes) -> dict[str, Json]:
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        raise call.reporter.malformed("the body is not JSON") from None
    if isinstance(payload, list) and len(payload) == 1:
        payload = payload[0]
    if not isinstance(payload, dict):
        raise call.reporter.malformed("the body is not a JSON object")
    return payload
