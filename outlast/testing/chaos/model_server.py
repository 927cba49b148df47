"""A model behind HTTP that knows its lines, and fails as real ones do: too many requests, overloaded, cut off, slow."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from typing import Any, Self

from outlast.testing.chaos.agents import INSTRUCTIONS, Turn

SLOW_SECONDS = 2.0
FAULTS: tuple[tuple[str, float], ...] = (
    ("429", 0.04),
    ("500", 0.03),
    ("529", 0.02),
    ("cut off", 0.03),
    ("slow", 0.02),
)
"""Each fault, and how often it happens."""


class ModelServer:
    """Serves Chat Completions on loopback; ``faults`` counts what went wrong on purpose."""

    def __init__(self, dice: random.Random) -> None:
        self.faults: Counter[str] = Counter()
        self.answered = 0
        self.url = ""
        self._dice = dice

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._exchange(reader, writer):
                pass
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length:"))
        request = json.loads(await reader.readexactly(length))
        fault = self._fault()
        if fault == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        if fault is not None and fault.isdigit():
            body = json.dumps({"error": {"message": f"chaos: {fault}", "type": "server_error"}}).encode()
            await _send(writer, fault, "application/json", body)
            return True
        self.answered += fault != "cut off"
        kind, body = _answer(request)
        await _send(writer, "200", kind, body, cut=fault == "cut off")
        return fault != "cut off"

    def _fault(self) -> str | None:
        fate = self._dice.random()
        for name, share in FAULTS:
            fate -= share
            if fate < 0:
                self.faults[f"model: {name}"] += 1
                return name
        return None


def _answer(request: dict[str, Any]) -> tuple[str, bytes]:
    """The next line of whoever asks, by how often it has answered in this conversation."""
    messages = request["messages"]
    lines: list[Turn] = INSTRUCTIONS[messages[0]["content"]]
    turn = lines[sum(message["role"] == "assistant" for message in messages)]
    calls = [
        {"index": number, "id": f"c{len(messages)}-{number}", "type": "function"}
        | {"function": {"name": name, "arguments": json.dumps(args)}}
        for number, (name, args) in enumerate(turn)
    ]
    said: dict[str, Any] = {"role": "assistant", "content": None if calls else "done"}
    said |= {"tool_calls": calls} if calls else {}
    finish = "tool_calls" if calls else "stop"
    about = {"id": "chaos", "created": 0, "model": "chaos"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if request.get("stream"):
        chunks = (
            {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage},
        )
        data = [json.dumps({**about, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
        return "text/event-stream", "".join(f"data: {line}\n\n" for line in [*data, "[DONE]"]).encode()
    choice = {"index": 0, "message": said, "finish_reason": finish}
    whole = {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
    return "application/json", json.dumps(whole).encode()


async def _send(writer: asyncio.StreamWriter, status: str, kind: str, body: bytes, *, cut: bool = False) -> None:
    retry = "retry-after: 0.2\r\n" if status == "429" else ""
    head = f"HTTP/1.1 {status} chaos\r\ncontent-type: {kind}\r\n{retry}content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + (body[: len(body) // 2] if cut else body))
    await writer.drain()
