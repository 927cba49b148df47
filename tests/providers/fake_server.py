"""A real HTTP/1.1 server on a free port of 127.0.0.1 that answers what a test queued, byte by byte as told."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from outlast.messages import Json


@dataclass(frozen=True)
class Received:
    """A request as it stood on the wire; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The decoded body."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """An answer: the chunks are written one by one; ``cut`` drops the connection before the end."""

    chunks: Sequence[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    cut: bool = False
    delay: float = 0.0


def json_reply(payload: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A JSON answer."""
    return Reply([json.dumps(payload).encode()], status, headers or {})


def sse_reply(text: str | bytes, *, cut: bool = False) -> Reply:
    """A stream of server-sent events."""
    return Reply([text if isinstance(text, bytes) else text.encode()], content_type="text/event-stream", cut=cut)


class FakeServer:
    """Answers queued replies in order; the last one over and over."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.replies: deque[Reply] = deque()
        self.url = ""

    def answer(self, *replies: Reply) -> None:
        """Forget what was queued and received, and queue these."""
        self.received.clear()
        self.replies = deque(replies)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = start.split(" ")
        self.received.append(Received(method, path, headers, body))
        reply = self.replies.popleft() if len(self.replies) > 1 else self.replies[0]
        await asyncio.sleep(reply.delay)
        extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        writer.write(
            f"HTTP/1.1 {reply.status} Status\r\ncontent-type: {reply.content_type}\r\n{extra}"
            "transfer-encoding: chunked\r\n\r\n".encode()
        )
        for chunk in reply.chunks:
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
        if reply.cut:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@asynccontextmanager
async def running() -> AsyncIterator[FakeServer]:
    """A server that lives as long as the block."""
    fake = FakeServer()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(fake.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
