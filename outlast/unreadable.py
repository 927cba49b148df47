"""What stands in for a payload that could not be read, and how it says that only a key was lacking.

A value whose key is lacking is not lost: another worker, or this one with its key back, reads it. Workflow code must
therefore not decide anything by it: the task fails, and is tried again until a worker with the key takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeGuard

TOMBSTONE: Final = "missing object"
MISSING_KEY: Final = "outlast-missing-key"
"""Metadata of a payload that stands in for a ciphertext, and member of its JSON: the id of the key."""


def is_tombstone(value: object) -> TypeGuard[Mapping[str, str]]:
    """Whether a decoded value is a tombstone; it then has a ``reason``."""
    return isinstance(value, dict) and value.get("outlast") == TOMBSTONE and isinstance(value.get("reason"), str)


def missing_key(metadata: Mapping[str, bytes]) -> str | None:
    """In words, which key is missing; None for a payload that was read."""
    found = metadata.get(MISSING_KEY)
    return None if found is None else _in_words(found.decode("ascii", "replace"))


def missing_key_of(value: object) -> str | None:
    """As :func:`missing_key`, of a decoded value."""
    found = value.get(MISSING_KEY) if is_tombstone(value) else None
    return _in_words(found) if isinstance(found, str) else None


def _in_words(id: str) -> str:
    return (
        f"it is encrypted with the key {id!r}, which this process does not have; "
        "give it that key in OUTLAST_ENCRYPTION_KEYS or OUTLAST_ENCRYPTION_KEY_FILE"
    )
