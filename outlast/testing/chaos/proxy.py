"""A TCP connection to the server that can be cut: what workers see of a network that fails."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self


class Proxy:
    """Listens on loopback and passes bytes on to ``target`` (``host:port``)."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._open: set[asyncio.StreamWriter] = set()
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> int:
        """Drop every connection; how many there were."""
        writers, self._open = self._open, set()
        for writer in writers:
            writer.transport.abort()
        return len(writers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream = await asyncio.open_connection(self._host, self._port)
        except OSError:  # the server has been killed
            writer.close()
            return
        self._open |= {writer, upstream}
        await asyncio.gather(_pass_on(reader, upstream), _pass_on(upstream_reader, writer))
        self._open -= {writer, upstream}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
