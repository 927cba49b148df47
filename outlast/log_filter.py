"""What a run says stays out of the logs of a worker whose payloads are encrypted.

Temporal's SDK logs the error of every failed activity with its message, and at debug level what is heartbeaten.
"""

from __future__ import annotations

import logging
import traceback
from types import TracebackType

_HEARTBEAT = "Recording heartbeat with details"
_MAX_CHAIN = 10


class WithoutContent(logging.Filter):
    """For handlers: takes the messages of exceptions and the details of heartbeats out of the SDK's own records.

    What stays: the record's sentence, the classes of the exceptions, file and line of each frame.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Changes the record, and lets it pass."""
        if record.name.partition(".")[0] != "temporalio":
            return True
        if isinstance(record.msg, str) and record.msg.startswith(_HEARTBEAT):
            record.msg, record.args = "Recording heartbeat", None
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = _without_messages(record.exc_info[1])  # formatters take it as it is
            record.exc_info = None
        return True


def install() -> None:
    """Add the filter to every handler of the root logger; once."""
    for handler in logging.getLogger().handlers:
        if not any(isinstance(item, WithoutContent) for item in handler.filters):
            handler.addFilter(WithoutContent())


def _without_messages(error: BaseException) -> str:
    """Classes and places of an exception and of what it came from; neither messages nor lines of source."""
    lines: list[str] = []
    found: BaseException | None = error
    for _ in range(_MAX_CHAIN):
        if found is None:
            break
        kind = type(found)
        lines.append(f"{kind.__module__}.{kind.__qualname__} (its message is not logged: encryption is on)")
        lines += _places(found.__traceback__)
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)
    return "\n".join(lines)


def _places(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace, limit=50)
    return [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
