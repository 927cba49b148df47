"""Agents from a file or a module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.worker import AgentsNotLoaded, is_guarded, load_agents

HEAD = """
from outlast import Agent, AgentOptions
from outlast.testing import ScriptedModel

def make(name):
    return Agent(AgentOptions(name=name, model=ScriptedModel([])))
"""


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    """Forget what a test imported."""
    path, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - known:
        del sys.modules[name]
    importlib.invalidate_caches()


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEAD + text)
    return file


def names(place: str | Path) -> list[str]:
    return [agent.name for agent in load_agents(place)]


def test_all_agents_of_a_file_are_found_in_lists_and_dicts_too_and_each_once(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "found_agents.py",
        "one = make('one')\nmore = [make('two'), one]\nby_name = {'x': make('three')}\nother = one\n",
    )
    assert names(file) == ["one", "two", "three"]
    assert sys.modules["found_agents"].__file__ == str(file)


def test_a_file_in_a_package_is_imported_under_its_dotted_name_and_may_import_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "shop_a/__init__.py", "")
    write(tmp_path, "shop_a/base.py", "NAME = 'based'\n")
    file = write(tmp_path, "shop_a/agents.py", "from .base import NAME\none = make(NAME)\n")
    assert names(file) == ["based"]
    assert "shop_a.agents" in sys.modules


def test_a_module_is_found_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "shop_b/__init__.py", "")
    write(tmp_path, "shop_b/agents.py", "one = make('one')\n")
    monkeypatch.chdir(tmp_path)
    assert names("shop_b.agents") == ["one"]
    assert names("shop_b/agents.py") == ["one"]


def test_a_missing_file_or_module_is_named_with_the_place_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(AgentsNotLoaded, match=r"there is no file .*missing\.py, seen from /"):
        load_agents(tmp_path / "missing.py")
    with pytest.raises(AgentsNotLoaded, match=r"no module 'no_such_module\.agents', seen from /"):
        load_agents("no_such_module.agents")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentsNotLoaded, match="is a folder; name the file"):
        load_agents(tmp_path)


def test_an_import_error_shows_the_users_own_line(tmp_path: Path) -> None:
    write(tmp_path, "helper_c.py", "import json\njson.loads('{')\n")
    file = write(tmp_path, "agents_c.py", "import helper_c\n")
    with pytest.raises(AgentsNotLoaded, match=r"helper_c\.py, line 8: json\.loads\('\{'\): JSONDecodeError: "):
        load_agents(file)


def test_a_module_that_the_file_misses_is_an_import_error_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "agents_d.py", "import no_such_thing\n")
    with pytest.raises(AgentsNotLoaded, match=r"agents_d\.py, line 7: import no_such_thing: ModuleNotFoundError"):
        load_agents(file)


def test_a_syntax_error_shows_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "agents_e.py", "def broken(:\n")
    with pytest.raises(AgentsNotLoaded, match=r"agents_e\.py, line 7: def broken\(:: SyntaxError"):
        load_agents(file)


def test_a_file_that_exits_when_it_is_imported_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "agents_f.py", "raise SystemExit(3)\n")
    with pytest.raises(AgentsNotLoaded, match="SystemExit: 3"):
        load_agents(file)


def test_a_wrong_agent_is_an_import_error_with_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "agents_g.py", "one = make('')\n")
    with pytest.raises(AgentsNotLoaded, match=r"line 6: return Agent\(.*: ValueError: AgentOptions.name must be"):
        load_agents(file)


def test_a_file_without_agents_is_told_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(AgentsNotLoaded, match="holds no agent; write `editor = Agent"):
        load_agents(write(tmp_path, "agents_h.py", ""))


def test_two_agents_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentsNotLoaded, match="two agents are named 'one'"):
        load_agents(write(tmp_path, "agents_i.py", "a = make('one')\nb = make('one')\n"))


def test_a_file_named_like_another_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentsNotLoaded, match=r"cannot be imported as 'json', which is the name of .*; rename it"):
        load_agents(write(tmp_path, "json.py", "one = make('one')\n"))


@pytest.mark.parametrize("name", ["agents.txt", "my.agents.py"])
def test_a_file_that_no_module_can_be_named_after_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AgentsNotLoaded, match=r"a module's file is named like agents\.py"):
        load_agents(write(tmp_path, name, "one = make('one')\n"))


def test_an_agent_that_a_factory_elsewhere_made_is_guarded_where_it_has_a_name(tmp_path: Path) -> None:
    write(tmp_path, "factory_k.py", "")
    file = write(tmp_path, "agents_k.py", "from factory_k import make\none = make('one')\nmore = [make('two')]\n")
    one, two = load_agents(file)
    assert (one.module, is_guarded(one)) == ("agents_k", True)
    assert (two.module, is_guarded(two)) == ("factory_k", False)
