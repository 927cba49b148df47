"""How commands read their arguments, and that a mistake is one sentence with exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outlast.cli.app import MODULES, build
from outlast.cli.runs import parse_object

COMMANDS = sorted(name for names in MODULES.values() for name in names)
runner = CliRunner()


def run(*words: str) -> tuple[int, str]:
    """Exit code and everything printed."""
    ended = runner.invoke(build(words[0]), list(words))
    return ended.exit_code, ended.output


def test_every_command_has_help_that_fits_80_columns() -> None:
    code, listed = run("--help")
    assert code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in listed
        code, text = run(command, "--help")
        assert code == 0
        assert max(map(len, text.splitlines())) <= 80, command
    assert "..." not in listed.partition("Commands:")[2]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("check", "dev", "key", "chaos")])
def test_every_command_that_needs_a_server_takes_the_same_three_options(command: str) -> None:
    _, text = run(command, "--help")
    assert all(option in text for option in ("--address", "--namespace", "--task-queue"))


@pytest.mark.parametrize("command", ["run", "runs", "show", "pending", "doctor", "watch"])
def test_commands_that_programs_read_take_json(command: str) -> None:
    assert "--json" in run(command, "--help")[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "editor", "hi", "--state-json", "{"], "--state-json is not JSON"),
        (["run", "editor", "hi", "--state-json", "[1]"], "--state-json must be a JSON object"),
        (["run", "editor", "  "], "the message is empty"),
        (["edit", "r", "publish", "--args", "nope"], "--args is not JSON"),
        (["runs", "--address", "http://x"], "address='http://x' is not allowed"),
        (["worker", "nowhere.py"], "there is no file nowhere.py"),
        (["check", "nowhere.py"], "there is no file nowhere.py"),
        (["worker", "nowhere.py", "--log-level", "loud"], "--log-level 'loud' is not allowed"),
        (["send", "r", ""], "the message is empty"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(words: list[str], says: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "outlast.cli", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert says in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert ended.stdout == ""


def test_an_object_is_an_object() -> None:
    assert parse_object('{"a": [1, null]}', "--x") == {"a": [1, None]}


def test_without_the_extra_one_sentence_tells_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('gone', name='typer')\n")
    ended = subprocess.run(
        [sys.executable, "-c", "from outlast.cli import main; main()"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr == "the command line needs typer; install it with: pip install 'outlast[cli]'\n"


def test_a_worker_loads_neither_rich_consoles_nor_http_nor_the_testing_kit(tmp_path: Path) -> None:
    program = (
        "import sys; from outlast.cli.app import build; build('worker'); import outlast.worker, outlast.check; "
        "print([name for name in ('rich.console', 'httpx', 'outlast.testing', 'outlast.devserver') "
        "if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.stdout == "[]\n", ended.stderr
