"""The tests of this folder use a real, small language model; its weights are fetched once and kept outside git."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.local_model import LocalModelServer, find_model


@pytest.fixture(scope="session")
def local_model() -> Iterator[str]:
    """The base URL of a model server; one thread, for the cores are shared with other tests."""
    with LocalModelServer(find_model(), threads=1) as server:
        yield server.base_url
