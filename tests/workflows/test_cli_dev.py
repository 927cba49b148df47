"""``outlast dev``: it starts, keeps, reloads and ends everything it started, whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from pathlib import Path

import psutil
import pytest

from .command_line import AGENTS, Folder, Process, are_gone, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_it_prints_where_everything_is_and_serves_the_web_ui(folder: Folder) -> None:
    with folder.dev() as dev:
        note, printed = folder.dev_note(), dev.printed()
        assert note.address in printed
        assert note.ui is not None
        assert note.ui in printed
        assert 'outlast run editor "Hello" --follow' in printed
        with urllib.request.urlopen(note.ui, timeout=10) as answer:
            assert answer.status == 200
        assert folder.outlast("doctor").stdout.count("none needs you") == 1


def test_ctrl_c_ends_it_with_0_and_leaves_no_process(folder: Folder) -> None:
    with folder.dev("--no-ui") as dev:
        family = dev.descendants()
        assert len(family) == 2, family  # the server and the worker
        assert dev.end() == 0
        assert are_gone(family, 1)
    assert "Traceback" not in dev.printed()


def test_kill_9_leaves_no_process(folder: Folder) -> None:
    with folder.dev("--no-ui") as dev:
        family = dev.descendants()
        dev.process.kill()
        dev.process.wait()
        assert are_gone(family)


def test_runs_go_on_at_the_next_start(folder: Folder) -> None:
    with folder.dev("--no-ui"):
        folder.outlast("run", "editor", "publish kept", "--id", "kept", "--wait", code=4)
    with folder.dev("--no-ui"):
        folder.outlast("approve", "kept")
        assert "Done: published kept" in folder.outlast("watch", "kept").stdout
        folder.outlast("replay", "kept", "--agents", folder.agents.name, "--exact")


def test_ctrl_c_lets_a_running_tool_finish(folder: Folder) -> None:
    with folder.dev("--no-ui") as dev:
        folder.outlast("run", "editor", "slow 3", "--id", "slow")
        wait_until(lambda: "slow began" in folder.done())
        assert dev.end() == 0
        assert folder.done() == ["slow began", "slow ended"]
    with folder.dev("--no-ui"):
        assert "Done: slept" in folder.outlast("watch", "slow").stdout
        assert folder.done() == ["slow began", "slow ended"]
        folder.outlast("replay", "slow", "--agents", folder.agents.name, "--exact")


def test_a_second_ctrl_c_stops_at_once_and_the_tool_is_run_again_at_the_next_start(folder: Folder) -> None:
    with folder.dev("--no-ui") as dev:
        family = dev.descendants()
        folder.outlast("run", "editor", "slow 2", "--id", "slow")
        wait_until(lambda: "slow began" in folder.done())
        dev.interrupt()
        dev.wait_for("again stops at once")
        dev.interrupt()
        assert dev.process.wait(3) == 130
        assert are_gone(family, 3)
    with folder.dev("--no-ui"):
        assert "Done: slept" in folder.outlast("watch", "slow").stdout
        assert folder.done() == ["slow began", "slow began", "slow ended"]


def test_a_killed_worker_is_started_again_and_its_run_goes_on(folder: Folder) -> None:
    with folder.dev("--no-ui") as dev:
        folder.outlast("run", "editor", "publish twice killed", "--id", "killed", "--wait", code=4)
        worker_of(dev).kill()
        dev.wait_for("was killed by signal 9")
        folder.outlast("approve", "killed")
        assert "Done: published twice killed" in folder.outlast("watch", "killed").stdout
        folder.outlast("replay", "killed", "--agents", folder.agents.name, "--exact")


def test_reload_serves_the_changed_file_and_survives_a_broken_one(folder: Folder) -> None:
    with folder.dev("--no-ui", "--reload") as dev:
        assert folder.outlast("run", "editor", "one", "--wait").stdout == "You said: one\n"
        sound = folder.agents.read_text()
        folder.agents.write_text("this is not Python\n")
        dev.wait_for("waiting for a change")
        assert f"{folder.agents.name}, line 1" in dev.printed()
        folder.agents.write_text(sound.replace("You said", "You wrote"))
        assert folder.outlast("run", "editor", "two", "--wait").stdout == "You wrote: two\n"


def test_a_port_in_use_is_one_sentence(folder: Folder) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = folder.outlast("dev", folder.agents.name, "--port", port, "--no-ui", code=2).stderr
        assert f"port {port}" in said
        assert "in use" in said
        assert len(said.strip().splitlines()) == 1
        said = folder.outlast("dev", folder.agents.name, "--port", "0", "--ui-port", port, code=2).stderr
        assert "--ui-port" in said


def test_a_second_one_in_the_same_folder_is_refused(folder: Folder) -> None:
    with folder.dev("--no-ui"):
        said = folder.outlast("dev", folder.agents.name, "--port", "0", "--no-ui", code=2).stderr
        assert folder.dev_note().address in said
        assert "--state" in said


def test_a_file_that_cannot_be_imported_ends_it_with_its_line(folder: Folder) -> None:
    folder.agents.write_text("import os\nimport no_such_module_here\n")
    said = folder.outlast("dev", folder.agents.name, "--port", "0", "--no-ui", code=2).stderr
    assert f"{folder.agents.name}, line 2: import no_such_module_here" in said
    assert not [item for item in psutil.process_iter() if is_of(item, folder)]


def worker_of(dev: Process) -> psutil.Process:
    """The worker's process."""
    [found] = [item for item in dev.descendants() if "outlast.cli.dev_worker" in item.cmdline()]
    return found


def is_of(process: psutil.Process, folder: Folder) -> bool:
    """Whether a process was started in this folder."""
    try:
        return process.pid != os.getpid() and process.cwd() == str(folder.path)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def test_a_closed_terminal_ends_it_too(folder: Folder) -> None:
    with folder.dev("--no-ui") as dev:
        family = dev.descendants()
        dev.process.send_signal(signal.SIGHUP)
        assert dev.process.wait(20) == 0
        assert are_gone(family, 1)


def test_commands_redact_what_an_agent_redacts_at_its_edges_before_they_send_it(folder: Folder) -> None:
    """AC-89: input, a message, new arguments, reason and comment; other agents are sent what was typed."""
    private = AGENTS.replace(
        "middleware=[human_in_the_loop", 'middleware=[pii_redact("email", at_edges=True), human_in_the_loop'
    ).replace("import human_in_the_loop", "import human_in_the_loop, pii_redact")
    plain = '\nplain = Agent(AgentOptions(name="plain", model=ScriptedModel([answer] * 100)))\n'
    folder.agents.write_text(private + plain)
    secret = "canary.7f3a@example.com"
    with folder.dev("--no-ui"):
        assert folder.dev_note().private == ["editor"]
        folder.outlast("run", "editor", f"publish {secret}", "--id", "one", "--wait", code=4)
        folder.outlast("send", "one", f"for {secret}")
        edit = ("edit", "one", "publish", "--args", json.dumps({"title": secret}), "--comment", f"not {secret}")
        assert "published [REDACTED_EMAIL]" in folder.outlast(*edit).stdout + folder.outlast("watch", "one").stdout
        folder.outlast("run", "editor", f"publish {secret}", "--id", "two", "--wait", code=4)
        folder.outlast("reject", "two", "publish", f"never {secret}")
        assert "never [REDACTED_EMAIL]" in folder.outlast("watch", "two").stdout
        assert secret in folder.outlast("run", "plain", f"hi {secret}", "--wait").stdout
        elsewhere = ("run", "editor", "hi", "--agents", "nowhere.py")
        assert "nowhere.py" in folder.outlast(*elsewhere, code=2).stderr
        assert folder.ledger.read_text() == "published [REDACTED_EMAIL]\n"
        shown = folder.read("show", "one"), folder.read("show", "two")
    assert secret not in str(shown)
    kept = b"".join(path.read_bytes() for path in (folder.path / ".outlast").glob("temporal.db*"))
    assert b"publish [REDACTED_EMAIL]" in kept
    assert b"publish canary" not in kept
