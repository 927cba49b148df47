"""A worker's health over HTTP: ``/healthz`` (the process lives) and ``/readyz`` (it takes work), as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from outlast.errors import OutlastError
from outlast.messages import Json

Answer = tuple[int, Mapping[str, Json]]
_STATUS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_SECONDS = 5.0


@asynccontextmanager
async def health_server(host: str, port: int, ready: Callable[[], Awaitable[Answer]]) -> AsyncIterator[int]:
    """Serve both; yields the port, which is a free one where 0 was asked for.

    Args:
        ready: The status and body of ``/readyz``.

    Raises:
        OutlastError: The port is in use, or the host is not this machine's.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_SECONDS):
                status, body = await _answer(await reader.readline(), ready)
                writer.write(_response(status, body))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(serve, host, port, limit=8192)
    except OSError as error:
        raise OutlastError(
            f"the health endpoint cannot listen on {host}:{port}: {error.strerror or error}; "
            "give another --health-port (OUTLAST_HEALTH_PORT)"
        ) from None
    try:
        chosen: int = server.sockets[0].getsockname()[1]
        yield chosen
    finally:
        server.close()


async def _answer(request: bytes, ready: Callable[[], Awaitable[Answer]]) -> Answer:
    method, _, rest = request.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if method not in ("GET", "HEAD"):
        return 405, {"error": "only GET is understood"}
    if path == "/healthz":
        return 200, {"status": "alive"}
    if path == "/readyz":
        return await ready()
    return 404, {"error": "known: /healthz, /readyz"}


def _response(status: int, body: Mapping[str, Json]) -> bytes:
    data = json.dumps(body).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data
