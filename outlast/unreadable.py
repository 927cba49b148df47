"""What stands in for a payload that could not be read, and how it says that another worker might read it.

A value whose key or store is lacking is not lost: another worker, or this one once it is set up, reads it. Workflow
code must therefore not decide anything by it: the task fails, and is tried again until a worker that can takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeGuard

TOMBSTONE: Final = "missing object"
MISSING_KEY: Final = "outlast-missing-key"
"""Metadata of a payload that stands in for a ciphertext, and member of its JSON: the id of the key."""

OTHER_STORE: Final = "outlast-other-store"
"""The same for a payload that lies in another store: which, and which one this process has."""

LOST: Final = "outlast-lost"
"""Metadata of a payload that stands in for a stored one that is gone: why it could not be had."""


def is_tombstone(value: object) -> TypeGuard[Mapping[str, str]]:
    """Whether a decoded value is a tombstone; it then has a ``reason``."""
    return isinstance(value, dict) and value.get("outlast") == TOMBSTONE and isinstance(value.get("reason"), str)


def lacking(metadata: Mapping[str, bytes]) -> str | None:
    """In words, what another worker may have that this one lacks; None for a payload that was read, or is lost."""
    for name, in_words in _LACKING.items():
        if (found := metadata.get(name)) is not None:
            return in_words(found.decode("ascii", "replace"))
    return None


def lacking_of(value: object) -> str | None:
    """As :func:`lacking`, of a decoded value."""
    found = {name: value.get(name) for name in _LACKING} if is_tombstone(value) else {}
    return next((_LACKING[name](text) for name, text in found.items() if isinstance(text, str)), None)


def lost(metadata: Mapping[str, bytes]) -> str | None:
    """Why a stored payload could not be had; None for one that was."""
    found = metadata.get(LOST)
    return None if found is None else found.decode("utf-8", "replace")


def _key_in_words(id: str) -> str:
    return (
        f"it is encrypted with the key {id!r}, which this process does not have; "
        "give it that key in OUTLAST_ENCRYPTION_KEYS or OUTLAST_ENCRYPTION_KEY_FILE"
    )


def _store_in_words(id: str) -> str:
    return f"it lies in another store ({id}); is the directory of OUTLAST_STORAGE the one of the others, and mounted?"


_LACKING: Final[Mapping[str, Callable[[str], str]]] = {MISSING_KEY: _key_in_words, OTHER_STORE: _store_in_words}
