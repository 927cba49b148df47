"""What the README and the docs show works as it stands there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tests.snippets import ROOT, Snippet, pages, snippets


@pytest.mark.parametrize("found", snippets(), ids=lambda found: f"{found.page}:{found.name}")
async def test_every_named_block_of_the_docs_runs(found: Snippet, tmp_path: Path) -> None:
    module = found.load(tmp_path)
    if "local_env" in found.code:
        return  # executed on a real server in tests/workflows/test_docs.py
    for name, function in vars(module).items():
        if name.startswith("test_") and inspect.iscoroutinefunction(function):
            await function()


def test_every_python_block_of_the_docs_is_named_and_so_executed() -> None:
    for page in pages():
        blocks = re.findall(r"(?:<!-- \w+\.py -->\n)?```python\n", page.read_text())
        assert all(block.startswith("<!--") for block in blocks), page


def test_every_relative_link_of_the_docs_leads_somewhere() -> None:
    for page in pages():
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
