"""What stands in for a stored payload that cannot be had.

An exception would fail the workflow task, which Temporal repeats for ever: one bad signal would end a run of weeks.
"""

from __future__ import annotations

import json
import logging

from temporalio.api.common.v1 import Payload

_log = logging.getLogger("outlast.storage")


def tombstone(reason: str) -> Payload:
    """A JSON payload ``{"outlast": "missing object", "reason": ...}``; also a line in the log."""
    _log.warning("a stored payload was replaced by a tombstone: %s", reason)
    body = json.dumps({"outlast": "missing object", "reason": reason})
    return Payload(metadata={"encoding": b"json/plain"}, data=body.encode())


def is_tombstone(value: object) -> bool:
    """Whether a decoded value is one."""
    return isinstance(value, dict) and value.get("outlast") == "missing object"
