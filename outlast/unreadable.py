"""How a payload says that its reader lacks the key it was encrypted with.

Such a value is not lost: another worker, or this one with its key back, reads it. Workflow code must therefore not
decide anything by it; see :meth:`outlast.workflows.runtime.TemporalRuntime.readable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MISSING_KEY: Final = "outlast-missing-key"
"""Metadata of a payload that stands in for a ciphertext: the id of the key that would decrypt it."""


def missing_key(metadata: Mapping[str, bytes]) -> str | None:
    """In words, which key is missing; None for a payload that was read."""
    found = metadata.get(MISSING_KEY)
    if found is None:
        return None
    return (
        f"it is encrypted with the key {found.decode('ascii', 'replace')!r}, which this process does not have; "
        "give it that key in OUTLAST_ENCRYPTION_KEYS or OUTLAST_ENCRYPTION_KEY_FILE"
    )
