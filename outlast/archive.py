"""The part of a transcript that no hook needs any more: it leaves the run's memory and stays readable.

A run of ten thousand steps must not carry ten thousand steps through every handover. What a middleware has declared
old (:meth:`HookContext.archive`) goes to storage when the run next continues as new; the run keeps where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import not_

from pydantic import Field

from outlast.messages import Message, Value, pinned_groups


class ArchivedPart(Value):
    """Some messages in storage.

    Attributes:
        messages: How many.
        payload: The Temporal payload that holds them, or refers to them, in base64.
    """

    messages: int
    payload: str


class Archive(Value):
    """What has left the run's memory.

    Attributes:
        parts: In the transcript's order.
        kept: How many of the first messages in memory are copies of archived ones.
    """

    parts: tuple[ArchivedPart, ...] = Field(default=(), exclude_if=not_)
    kept: int = Field(default=0, exclude_if=not_)

    @property
    def messages(self) -> int:
        """How many messages were archived."""
        return sum(part.messages for part in self.parts)


def archive_before(transcript: Sequence[Message], kept: int, message_id: str) -> tuple[list[Message], list[Message]]:
    """What of the transcript in memory may leave it, and which of that stays as copies in front of the rest.

    Everything before the message of this id may leave, or before the call that it answers: no call is parted from its
    results. Copies stay of pinned messages, with their calls and results, and of the user's first and newest message.

    Args:
        kept: How many of the first messages are such copies already.
        message_id: Unknown ids archive nothing.
    """
    end = next((index for index in range(kept, len(transcript)) if transcript[index].id == message_id), kept)
    while end > kept and transcript[end].role == "tool":
        end -= 1
    if end == kept:
        return [], list(transcript[:kept])
    old = list(transcript[:end])
    asked = [message for message in old if message.role == "user"]
    stays = {id(message) for message in (*pinned_groups(old), *asked[:1], *asked[-1:])}
    return old[kept:], [message for message in old if id(message) in stays]
