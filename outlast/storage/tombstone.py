"""What stands in for a stored payload that cannot be had.

An exception would fail the workflow task, which Temporal repeats for ever: one bad signal would end a run of weeks.
"""

from __future__ import annotations

import json
import logging

from temporalio.api.common.v1 import Payload

from outlast.unreadable import TOMBSTONE, is_tombstone

__all__ = ["is_tombstone", "tombstone"]

_log = logging.getLogger("outlast.storage")


def tombstone(reason: str, *, level: int = logging.WARNING, **more: str) -> Payload:
    """A JSON payload ``{"outlast": "missing object", "reason": ...}``, with ``more``; also a line in the log."""
    _log.log(level, "a payload was replaced by a tombstone: %s", reason)
    body = json.dumps({"outlast": TOMBSTONE, "reason": reason, **more})
    return Payload(metadata={"encoding": b"json/plain"}, data=body.encode())
