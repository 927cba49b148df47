"""The transcript as payloads: immutable chunks, each encoded once, neighbours merged.

A model call over n messages so carries O(log n) payloads, and its cost in history does not grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import is_

from temporalio.common import RawValue

from outlast.activities.models import json_value
from outlast.messages import Message, dump_messages

FANOUT = 2
MAX_CHUNK_BYTES = 1_000_000


@dataclass(frozen=True)
class Chunk:
    """Messages ``start`` to ``end`` (exclusive) of the transcript, and their payload."""

    start: int
    end: int
    level: int
    payload: RawValue

    @property
    def size(self) -> int:
        """Bytes of JSON."""
        return len(self.payload.payload.data)


class TranscriptChunks:
    """Chunks over an append-only transcript; the list itself stays the run's."""

    def __init__(self, transcript: Sequence[Message], known: Sequence[tuple[int, int]] = ()) -> None:
        """``known``: length and level of the chunks that the transcript was already divided in (continue-as-new)."""
        self._transcript = transcript
        self._chunks: list[Chunk] = []
        self._single: dict[str, tuple[Message, RawValue]] = {}
        for length, level in known:
            self._chunks.append(self._encode(self._covered, self._covered + length, level))

    @property
    def _covered(self) -> int:
        return self._chunks[-1].end if self._chunks else 0

    def chunks(self) -> list[Chunk]:
        """The chunks of the whole transcript, new messages included."""
        if len(self._transcript) > self._covered:
            self._chunks.append(self._encode(self._covered, len(self._transcript), 0))
            self._merge()
        return self._chunks

    def layout(self) -> list[tuple[int, int]]:
        """Length and level of every chunk, for the next execution."""
        return [(chunk.end - chunk.start, chunk.level) for chunk in self.chunks()]

    def payloads_for(self, messages: Sequence[Message]) -> list[RawValue]:
        """Payloads for a request: stretches that are the transcript's own messages reuse its chunks."""
        return list(self._payloads(messages, self.chunks()))

    def _payloads(self, messages: Sequence[Message], chunks: list[Chunk]) -> Iterator[RawValue]:
        starts = {id(self._transcript[chunk.start]): chunk for chunk in chunks}
        loose: list[Message] = []
        index = 0
        while index < len(messages):
            chunk = starts.get(id(messages[index]))
            if chunk is not None and self._stands_at(messages, index, chunk):
                if loose:
                    yield self._loose(loose)
                    loose = []
                yield chunk.payload
                index += chunk.end - chunk.start
            else:
                loose.append(messages[index])
                index += 1
        if loose:
            yield self._loose(loose)

    def _stands_at(self, messages: Sequence[Message], index: int, chunk: Chunk) -> bool:
        own = self._transcript[chunk.start : chunk.end]
        return index + len(own) <= len(messages) and all(map(is_, messages[index : index + len(own)], own))

    def _loose(self, messages: list[Message]) -> RawValue:
        if len(messages) > 1:
            return json_value(dump_messages(messages))
        [message] = messages
        kept = self._single.get(message.role)  # the system message is the same in every step
        if kept is None or kept[0] != message:
            kept = self._single[message.role] = (message, json_value(dump_messages(messages)))
        return kept[1]

    def _encode(self, start: int, end: int, level: int) -> Chunk:
        return Chunk(start, end, level, json_value(dump_messages(self._transcript[start:end])))

    def _merge(self) -> None:
        """Neighbours of one level become one of the next, unless that would be too large for a payload."""
        while len(self._chunks) >= FANOUT:
            last = self._chunks[-FANOUT:]
            if (
                any(chunk.level != last[0].level for chunk in last)
                or sum(chunk.size for chunk in last) > MAX_CHUNK_BYTES
            ):
                return
            self._chunks[-FANOUT:] = [_joined(last)]


def _joined(chunks: Sequence[Chunk]) -> Chunk:
    """Neighbouring arrays as one array, byte for byte what encoding their messages together would give."""
    data = b"[" + b",".join(chunk.payload.payload.data[1:-1] for chunk in chunks) + b"]"
    return Chunk(chunks[0].start, chunks[-1].end, chunks[0].level + 1, json_value(data))
