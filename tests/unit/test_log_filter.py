"""With encryption a worker's log tells what failed and where, not what was said."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from outlast.log_filter import WithoutContent, install


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(WithoutContent())
    logger = logging.getLogger("temporalio.activity")
    logger.addHandler(handler)
    yield logger, stream
    logger.removeHandler(handler)


def raise_chained() -> None:
    try:
        raise LookupError("MARKER inner")
    except LookupError as error:
        raise ValueError("MARKER outer") from error  # MARKER source


def test_classes_and_places_of_errors_stay_and_messages_go(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    try:
        raise_chained()
    except ValueError:
        logger.warning("Completing activity as failed (%s)", {"activity_id": "s0001"}, exc_info=True)
    found = stream.getvalue()
    assert "MARKER" not in found
    assert "Completing activity as failed ({'activity_id': 's0001'})" in found
    assert found.index("builtins.ValueError") < found.index("builtins.LookupError")
    assert "test_log_filter.py:" in found
    assert "in raise_chained" in found


def test_what_is_heartbeaten_goes(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.setLevel(logging.DEBUG)
    logger.debug("Recording heartbeat with details %s ", ("MARKER",))
    logger.setLevel(logging.NOTSET)
    assert stream.getvalue() == "Recording heartbeat\n"


def test_other_loggers_are_left_alone() -> None:
    record = logging.LogRecord("mine", logging.INFO, "x.py", 1, "Recording heartbeat with details %s", ("kept",), None)
    assert WithoutContent().filter(record)
    assert record.getMessage() == "Recording heartbeat with details kept"


def test_it_is_installed_once() -> None:
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        install()
        install()
        assert sum(isinstance(item, WithoutContent) for item in handler.filters) == 1
    finally:
        logging.getLogger().removeHandler(handler)
        for other in logging.getLogger().handlers:
            other.filters[:] = [item for item in other.filters if not isinstance(item, WithoutContent)]
