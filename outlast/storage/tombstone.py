"""What stands in for a stored payload that cannot be had.

An exception would fail the workflow task, which Temporal repeats for ever: one bad signal would end a run of weeks.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from types import MappingProxyType

from temporalio.api.common.v1 import Payload

from outlast.unreadable import LOST, TOMBSTONE, is_tombstone

__all__ = ["is_tombstone", "tombstone"]

_log = logging.getLogger("outlast.storage")


def tombstone(reason: str, marks: Mapping[str, str] = MappingProxyType({}), *, level: int = logging.WARNING) -> Payload:
    """A JSON payload ``{"outlast": "missing object", "reason": ...}``, with ``marks``; also a line in the log.

    The marks are in its metadata too: workflow code sees payloads before they are decoded.
    """
    _log.log(level, "a payload was replaced by a tombstone: %s", reason)
    body = json.dumps({"outlast": TOMBSTONE, "reason": reason, **marks})
    metadata = {name: text.encode("utf-8", "replace") for name, text in marks.items()}
    return Payload(metadata={"encoding": b"json/plain", **metadata}, data=body.encode())


def lost_object(reason: str) -> Payload:
    """The tombstone of an object that was stored, and that somebody may put back."""
    return tombstone(reason, {LOST: reason})
