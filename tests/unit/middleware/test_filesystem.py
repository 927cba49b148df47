"""AC-117, D57 to D60: four tools in one folder; every escape is an answer, and nothing outside is touched."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.middleware import filesystem_middleware, filesystem_tools
from outlast.middleware.contained_files import Opener, Refused, open_beneath, open_by_kernel, open_by_walking
from outlast.middleware.workspace import Workspace
from outlast.testing.scripted import Reply, call, calls
from tests.unit.middleware.agents import run, texts

SECRET = "outside"


class Tools:
    """The four tools of a folder, called as a model would."""

    def __init__(self, root: Path) -> None:
        self._tools = {tool.name: tool for tool in filesystem_tools(root)}

    def __getattr__(self, name: str) -> Any:
        return self._tools[name]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a secret beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    (tmp_path / "root-evil").mkdir()
    (tmp_path / "root-evil" / "secret.txt").write_text(SECRET)
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.txt").write_text("deep")
    (folder / "to-file").symlink_to(tmp_path / "outside" / "secret.txt")
    (folder / "to-folder").symlink_to(tmp_path / "outside")
    (folder / "up").symlink_to("../outside")
    (folder / "sub" / "chain").symlink_to("../up/secret.txt")
    (folder / "dangling").symlink_to(tmp_path / "outside" / "new.txt")
    (folder / "proc").symlink_to("/proc/self/root")
    (folder / "loop").symlink_to("loop")
    return folder


@pytest.fixture
def outside_is_untouched(root: Path) -> Iterator[None]:
    """Checks afterwards that nothing beside the workspace was changed or made."""
    yield
    files = sorted(str(path.relative_to(root.parent)) for path in root.parent.rglob("*") if root not in path.parents)
    assert files == ["outside", "outside/secret.txt", "root", "root-evil", "root-evil/secret.txt"]
    assert (root.parent / "outside" / "secret.txt").read_text() == SECRET


ESCAPES = [
    "../outside/secret.txt",
    "sub/../../outside/secret.txt",
    "..",
    "/../outside/secret.txt",
    "~/secret.txt",
    "~root/x",
    "notes.txt\0",
    "to-file",
    "to-folder/secret.txt",
    "to-folder/new.txt",
    "up/secret.txt",
    "sub/chain",
    "dangling",
    "proc/etc/passwd",
    "loop",
    "loop/x",
    "../root-evil/secret.txt",
    "x" * 300,
    "a/" * 200 + "x",
    "\ud800",
    ".outlast/server.db",
    ".Outlast-files/lock",
    "notes.txt/x",
]


@pytest.mark.usefixtures("outside_is_untouched")
@pytest.mark.parametrize("path", ESCAPES)
def test_an_escape_is_answered_with_words_by_each_of_the_tools(root: Path, path: str) -> None:
    """AC-117, D58: nothing outside is read, created or changed."""
    tools = Tools(root)
    answers = [
        tools.ls(path=path),
        tools.read_file(path=path),
        tools.write_file(path=path, content="x"),
        tools.edit_file(path=path, old_string="o", new_string="x"),
    ]
    assert all(answer.startswith("Error: ") for answer in answers), answers
    assert not any(SECRET in answer.replace(path, "") for answer in answers)


@pytest.mark.usefixtures("outside_is_untouched")
@pytest.mark.parametrize(
    "path", ["%2e%2e/outside/secret.txt", "..\\outside\\secret.txt", "C:\\x", "/etc/passwd", "$HOME"]
)
def test_what_only_looks_like_an_escape_is_an_ordinary_name_in_the_workspace(root: Path, path: str) -> None:
    """AC-117, D59: `/output.txt` is output.txt in the workspace."""
    tools = Tools(root)
    assert tools.write_file(path=path, content="mine").startswith("Created")
    assert tools.read_file(path=path) == "mine"
    assert (root / path.lstrip("/")).read_text() == "mine"


@pytest.mark.parametrize("path", ["foo..bar.txt", "app/[...slug]/page.tsx", "...", "a..", "..b"])
def test_names_with_two_dots_in_them_work(root: Path, path: str) -> None:
    """D57."""
    tools = Tools(root)
    tools.write_file(path=path, content="x")
    assert (tools.read_file(path=path), (root / path).read_text()) == ("x", "x")


def test_the_root_may_itself_be_a_link_and_may_be_relative(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AC-117."""
    (tmp_path / "link").symlink_to(root)
    assert Tools(tmp_path / "link").read_file(path="/notes.txt") == "one\ntwo\n"
    monkeypatch.chdir(tmp_path)
    assert Tools(Path("root")).read_file(path="sub/deep.txt") == "deep"


def test_a_link_that_stays_inside_is_followed_by_reading_and_not_written_through(root: Path) -> None:
    """D58: the resolved path decides; a write to a link would replace the link."""
    (root / "inner").symlink_to("sub")
    (root / "alias").symlink_to("sub/deep.txt")
    tools = Tools(root)
    assert tools.read_file(path="inner/deep.txt") == tools.read_file(path="alias") == "deep"
    assert "is a symbolic link" in tools.write_file(path="alias", content="x")
    assert tools.write_file(path="inner/new/file.txt", content="x").startswith("Created")
    assert (root / "sub" / "new" / "file.txt").read_text() == "x"


def test_pipes_sockets_devices_and_folders_are_no_files(root: Path) -> None:
    """AC-117: and nobody waits for the other end of a pipe."""
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "socket"))
    tools = Tools(root)
    for name in ("pipe", "socket"):
        assert tools.read_file(path=name).startswith("Error: ")
        assert "no ordinary file" in tools.write_file(path=name, content="x")
    assert "is a folder" in tools.read_file(path="sub")
    assert "is a folder" in tools.write_file(path="/", content="x")


def test_listing_shows_what_each_entry_is_and_not_what_is_the_engines(root: Path) -> None:
    tools = Tools(root)
    tools.write_file(path="zero", content="")
    os.mkfifo(root / "pipe")
    assert tools.ls().splitlines() == [
        "dangling (symbolic link)",
        "loop (symbolic link)",
        "notes.txt (8 bytes)",
        "pipe (no ordinary file)",
        "proc (symbolic link)",
        "sub/",
        "to-file (symbolic link)",
        "to-folder (symbolic link)",
        "up (symbolic link)",
        "zero (0 bytes)",
    ]
    (root / "empty").mkdir()
    assert tools.ls(path="empty") == "[empty is empty.]"


def test_a_long_listing_is_cut_and_says_so(root: Path) -> None:
    for number in range(1001):
        (root / "sub" / f"{number:04}").touch()
    assert Tools(root).ls(path="sub").splitlines()[-1] == "[1,000 of 1,003 entries.]"


def test_reading_goes_on_where_it_was_cut(root: Path) -> None:
    (root / "long.txt").write_text("".join(f"line {number}\n" for number in range(5000)))
    tools = Tools(root)
    first = tools.read_file(path="long.txt").splitlines()
    assert (first[0], first[1999], first[2000]) == (
        "line 0",
        "line 1999",
        "[Lines 1 to 2000 of 5000. Go on with offset=2000.]",
    )
    assert tools.read_file(path="long.txt", offset=4999, limit=5) == "line 4999\n[Lines 5000 to 5000 of 5000.]"
    assert tools.read_file(path="long.txt", offset=5000) == (
        "Error: long.txt has 5000 lines; offset is from 0 to 4999, limit from 1 up"
    )
    (root / "wide.txt").write_text("x" * 300_000)
    assert len(tools.read_file(path="wide.txt")) < 101_000
    (root / "empty.txt").touch()
    assert tools.read_file(path="empty.txt") == "[empty.txt is empty.]"


def test_files_that_are_no_text_or_too_large_are_said_to_be(root: Path) -> None:
    (root / "binary").write_bytes(b"\xff\xfe\x00")
    with (root / "large").open("wb") as file:
        file.truncate(10_000_001)
    tools = Tools(root)
    assert tools.read_file(path="binary") == "Error: binary is not a UTF-8 text; it has 3 bytes"
    assert "more than 10,000,000 bytes" in tools.read_file(path="large")
    assert "10,000,000 are allowed" in tools.write_file(path="new", content="x" * 10_000_001)
    assert not (root / "new").exists()


def test_a_workspace_that_is_not_there_is_an_answer_too(tmp_path: Path) -> None:
    assert (
        Tools(tmp_path / "nowhere").ls()
        == "Error: the workspace cannot be used on this worker: No such file or directory"
    )


@pytest.mark.parametrize(("root", "error"), [("", ValueError), (None, TypeError), (3, TypeError)])
def test_a_root_that_is_no_path_is_refused_at_once(root: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="filesystem: root"):
        filesystem_tools(root)


def test_writing_keeps_permissions_and_leaves_nothing_behind(root: Path) -> None:
    (root / "run.sh").write_text("a")
    (root / "run.sh").chmod(0o750)
    Tools(root).write_file(path="run.sh", content="b")
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o750
    assert [path.name for path in root.iterdir() if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize("opener", [open_by_kernel, open_by_walking, open_beneath])
@pytest.mark.parametrize(
    "path", ["to-file", "to-folder/secret.txt", "up/secret.txt", "sub/chain", "proc/etc/passwd", "loop"]
)
def test_each_way_of_opening_refuses_what_leads_out(root: Path, opener: Opener, path: str) -> None:
    """AC-117: with and without openat2."""
    folder = os.open(root, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"cross-device|symbolic links"):
            os.close(opener(folder, tuple(path.split("/")), os.O_RDONLY))
    finally:
        os.close(folder)


@pytest.mark.parametrize("opener", [open_by_kernel, open_by_walking])
def test_each_way_of_opening_follows_links_that_stay_inside(root: Path, opener: Opener) -> None:
    (root / "sub" / "back").symlink_to("../sub/./deep.txt")
    (root / "here").symlink_to(".")
    (root / "there").symlink_to("here/sub")
    files = Workspace(str(root), opener)
    assert files.read("sub/back") == files.read("there/deep.txt") == b"deep"
    assert [name for name, _ in files.entries("there")] == ["back", "chain", "deep.txt"]


def test_walking_leaves_no_descriptor_open(root: Path) -> None:
    files = Workspace(str(root), open_by_walking)
    before = sorted(Path("/proc/self/fd").iterdir())
    files.read("sub/deep.txt")
    for path in ESCAPES:
        with pytest.raises(Refused):
            files.read(path)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


async def test_an_escape_leaves_the_run_going(root: Path) -> None:
    """AC-117."""
    script: list[Reply] = [
        calls(call("read_file", path="../outside/secret.txt"), call("ls")),
        calls(call("write_file", path="a/b.txt", content="x"), call("read_file", path="missing")),
        "done",
    ]
    result = await run(script, filesystem_middleware(root))
    answers = texts(result.messages)
    assert answers[0].startswith("Error: '../outside/secret.txt' leads out of the workspace")
    assert answers[2:] == ["Created a/b.txt (1 bytes).", "Error: 'missing': No such file or directory"]
    assert result.output == "done"


async def test_the_tools_may_be_given_without_the_middleware(root: Path) -> None:
    result = await run([call("read_file", path="notes.txt"), "done"], tools=filesystem_tools(root))
    assert texts(result.messages) == ["one\ntwo\n"]


def test_the_model_is_told_of_paths_and_not_of_contexts(root: Path) -> None:
    parameters = {tool.name: list(tool.spec.parameters["properties"]) for tool in filesystem_tools(root)}
    assert parameters == {
        "ls": ["path"],
        "read_file": ["path", "offset", "limit"],
        "write_file": ["path", "content"],
        "edit_file": ["path", "old_string", "new_string", "replace_all"],
    }
