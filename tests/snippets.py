"""The named code blocks of the README and of `docs/`, so that tests can execute what a reader copies."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"<!-- (\w+\.py) -->\n```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """One block: the page it stands on, its file name, its code."""

    page: str
    name: str
    code: str

    def load(self, folder: Path) -> ModuleType:
        """The block as an imported module."""
        path = folder / self.name
        path.write_text(self.code)
        spec = importlib.util.spec_from_file_location(f"snippet_{self.name[:-3]}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def pages() -> list[Path]:
    """The README and every page of `docs/`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def snippets() -> list[Snippet]:
    """Every named block."""
    return [
        Snippet(str(page.relative_to(ROOT)), name, code)
        for page in pages()
        for name, code in _BLOCK.findall(page.read_text())
    ]


def snippet(page: str, name: str) -> Snippet:
    """The block of this name on this page."""
    return next(found for found in snippets() if found.page == page and found.name == name)
