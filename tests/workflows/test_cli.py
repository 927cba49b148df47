"""The commands on runs, in processes of their own, against a real ``outlast dev``."""

from __future__ import annotations

import getpass
import json
import subprocess
import sysconfig
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from outlast.client import Client
from outlast.settings import Settings, connect
from outlast.testing import replay
from outlast.testing.histories import fetch_histories
from outlast.worker import load_agents

from .command_line import Folder, wait_until

TEMPORAL = str(Path(sysconfig.get_path("scripts")) / "temporal")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    """A folder in which ``outlast dev`` runs."""
    found = Folder(tmp_path_factory.mktemp("project"))
    with found.dev("--no-ui"):
        yield found


@pytest.fixture(autouse=True)
async def replayed(folder: Folder) -> AsyncIterator[None]:
    """Every run that a test started is replayed at its end."""
    note = folder.dev_note()
    settings = Settings.load(address=note.address, storage=note.storage, environ={})
    client = Client(await connect(settings), task_queue=note.task_queue)
    before = {info.id for info in await client.runs(limit=1000)}
    yield
    started = [(info.id, None) for info in await client.runs(limit=1000) if info.id not in before]
    await replay(load_agents(folder.agents), await fetch_histories(client.temporal, started), storage=note.storage)


def start(folder: Folder, message: str) -> str:
    """A run's id."""
    return folder.outlast("run", "editor", message).stdout.strip()


def wait_for_status(folder: Folder, run: str, status: str) -> dict[str, Any]:
    """The run as ``show --json`` gives it, once it has this status."""
    shown: list[dict[str, Any]] = []

    def has_status() -> bool:
        shown.append(folder.read("show", run))
        return bool(shown[-1]["run"]["status"] == status)

    wait_until(has_status, explain=lambda: str(shown[-1]))
    return shown[-1]


def test_a_run_that_is_followed_shows_its_answer_once_and_exits_with_0(folder: Folder) -> None:
    ended = folder.outlast("run", "editor", "Hello", "--follow")
    assert ended.stdout.count("You said: Hello") == 1
    assert "completed" in ended.stdout


def test_a_run_that_is_waited_for_prints_the_answer_alone(folder: Folder) -> None:
    assert folder.outlast("run", "editor", "Hello", "--wait").stdout == "You said: Hello\n"


def test_the_message_is_read_from_standard_input_where_it_is_a_dash(folder: Folder) -> None:
    assert folder.outlast("run", "editor", "-", "--wait", stdin="piped").stdout == "You said: piped\n"


def test_a_started_run_prints_its_id_alone_and_with_json_an_object(folder: Folder) -> None:
    assert folder.outlast("run", "editor", "Hello", "--id", "mine").stdout == "mine\n"
    assert folder.read("run", "editor", "Hello", "--id", "mine-2") == {"id": "mine-2", "agent": "editor"}
    assert "mine" in folder.outlast("run", "editor", "Hello", "--id", "mine", code=2).stderr
    wait_for_status(folder, "mine", "completed")
    wait_for_status(folder, "mine-2", "completed")


def test_a_run_that_is_waited_for_exits_with_4_once_it_needs_a_decision(folder: Folder) -> None:
    ended = folder.outlast("run", "editor", "publish four", "--id", "four", "--wait", code=4)
    assert ended.stdout == ""
    assert "publish" in ended.stderr
    folder.outlast("reject", "four", "publish", "not today")
    shown = wait_for_status(folder, "four", "completed")
    assert "not today" in shown["result"]["output"]


def test_approve_shows_the_whole_arguments_and_names_who_decided(folder: Folder) -> None:
    title = "long " + "x" * 1000 + " end"
    run = start(folder, f"publish {title}")
    wait_for_status(folder, run, "suspended")
    listed = folder.outlast("pending").stdout
    assert title in listed
    shown = folder.outlast("approve", run, "--comment", "looks fine").stdout
    assert title in shown
    result = wait_for_status(folder, run, "completed")["result"]
    assert result["audit"][0]["decision"] == {
        "kind": "approve", "by": getpass.getuser(), "comment": "looks fine", "reason": ""
    }  # fmt: skip
    assert f"published {title}" in folder.done()


def test_an_edit_replaces_the_arguments_that_run(folder: Folder) -> None:
    run = start(folder, "publish draft")
    wait_for_status(folder, run, "suspended")
    refused = folder.outlast("edit", run, "publish", "--args", '{"titel": "x"}', code=2)
    assert "titel" in refused.stderr or "title" in refused.stderr
    folder.outlast("edit", run, "publish", "--args", '{"title": "final"}', "--by", "alice")
    shown = wait_for_status(folder, run, "completed")
    assert shown["result"]["audit"][0]["decision"]["by"] == "alice"
    assert "published final" in folder.done()
    assert "published draft" not in folder.done()


def test_with_two_calls_pending_a_decision_must_name_one(folder: Folder) -> None:
    run = start(folder, "twice note")
    wait_for_status(folder, run, "suspended")
    assert "call_1_1 (publish), call_1_2 (publish)" in folder.outlast("approve", run, code=2).stderr
    folder.outlast("approve", run, "call_1_2")
    folder.outlast("reject", run, "call_1_1", "one is enough")
    wait_for_status(folder, run, "completed")
    assert "published note 2" in folder.done()
    assert "published note 1" not in folder.done()


def test_a_plain_temporal_signal_approves_too(folder: Folder) -> None:
    run = start(folder, "publish by signal")
    wait_for_status(folder, run, "suspended")
    value = json.dumps({"interrupt": "publish", "decision": "approve", "by": "temporal"})
    command = [TEMPORAL, "workflow", "signal", "--address", folder.dev_note().address, "--workflow-id", run]
    subprocess.run([*command, "--name", "decide", "--input", value], check=True, capture_output=True, timeout=30)
    shown = wait_for_status(folder, run, "completed")
    assert shown["result"]["audit"][0]["decision"]["by"] == "temporal"


def test_a_paused_run_exits_with_3_and_goes_on_when_resumed_and_ends_when_aborted(folder: Folder) -> None:
    ended = folder.outlast("run", "editor", "boom", "--id", "boom", "--follow", code=3)
    assert "ValueError: boom" in ended.stdout
    assert "outlast resume boom" in ended.stdout
    folder.outlast("resume", "boom")
    wait_for_status(folder, "boom", "paused")
    folder.outlast("abort", "boom", "hopeless")
    shown = wait_for_status(folder, "boom", "failed")
    assert "hopeless" in shown["run"]["error"]
    assert "hopeless" in folder.outlast("watch", "boom", code=1).stdout


def test_an_unknown_agent_parks_the_run_and_following_it_says_which_are_known(folder: Folder) -> None:
    ended = folder.outlast("run", "nobody", "Hello", "--follow", code=3)
    assert "no agent is named 'nobody'" in ended.stdout
    assert "editor" in ended.stdout


def test_a_message_steers_and_a_cancelled_run_is_over(folder: Folder) -> None:
    run = start(folder, "publish steered")
    wait_for_status(folder, run, "suspended")
    folder.outlast("send", run, "Mention the fix")
    folder.outlast("cancel", run)
    wait_for_status(folder, run, "cancelled")
    assert "is over" in folder.outlast("cancel", run, code=2).stderr
    assert "is over" in folder.outlast("approve", run, code=2).stderr


@pytest.mark.parametrize(
    "words",
    [("show",), ("watch",), ("cancel",), ("resume",), ("abort",), ("approve",), ("send", "hi"), ("reject", "x", "why")],
)
def test_a_wrong_run_id_is_one_sentence_and_exit_code_2(folder: Folder, words: tuple[str, ...]) -> None:
    command, *rest = words
    said = folder.outlast(command, "no-such-run", *rest, code=2).stderr
    assert "no-such-run" in said
    assert len(said.strip().splitlines()) == 1


def test_watching_a_run_prints_its_events_as_json_lines_and_then_the_result(folder: Folder) -> None:
    run = start(folder, "Hello")
    wait_for_status(folder, run, "completed")
    lines = [json.loads(line) for line in folder.outlast("watch", run, "--json").stdout.splitlines()]
    assert [line["kind"] for line in lines[:-1]] == [
        "run.started", "step.started", "model.completed", "text", "run.finished"
    ]  # fmt: skip
    assert lines[-1]["result"]["output"] == "You said: Hello"


def test_runs_are_listed_with_their_status_and_open_ones_alone(folder: Folder) -> None:
    done, waiting = start(folder, "Hello"), start(folder, "publish listed")
    wait_for_status(folder, done, "completed")
    wait_for_status(folder, waiting, "suspended")
    listed = {info["id"]: info["status"] for info in folder.read("runs")}
    assert (listed[done], listed[waiting]) == ("completed", "suspended")
    still_open = [info["id"] for info in folder.read("runs", "--open")]
    assert waiting in still_open
    assert done not in still_open
    assert "waiting" in folder.outlast("runs").stdout


def test_what_a_run_says_reaches_the_terminal_without_control_characters(folder: Folder) -> None:
    hostile = "\x1b[31mred\x1b[0m [bold]markup[/bold] \u202egnp.exe"
    run = start(folder, f"publish {hostile}")
    wait_for_status(folder, run, "suspended")
    for words in (("show", run), ("pending",), ("pending", run), ("approve", run)):
        printed = folder.outlast(*words).stdout
        assert not {"\x1b", "\u202e"} & set(printed), words
        assert "\\u001b[31mred" in printed
        assert "[bold]markup[/bold]" in printed
        assert "\\u202egnp.exe" in printed
    wait_for_status(folder, run, "completed")


def test_replay_says_whether_a_run_survives_the_code(folder: Folder, tmp_path: Path) -> None:
    run = start(folder, "publish replayed")
    wait_for_status(folder, run, "suspended")
    folder.outlast("approve", run)
    wait_for_status(folder, run, "completed")
    assert "replays: 1 execution" in folder.outlast("replay", run, "--agents", folder.agents.name, "--exact").stdout
    command = [TEMPORAL, "workflow", "show", "--address", folder.dev_note().address, "-w", run, "-o", "json"]
    history = tmp_path / "history.json"
    history.write_bytes(subprocess.run(command, check=True, capture_output=True, timeout=30).stdout)
    folder.outlast("replay", str(history), "--agents", folder.agents.name)
    changed = folder.path / "changed.py"
    changed.write_text(folder.agents.read_text().replace('{"publish": True}', "{}"))
    assert "does not replay" in folder.outlast("replay", run, "--agents", "changed.py", code=1).stderr
    assert "no-such" in folder.outlast("replay", "no-such", "--agents", folder.agents.name, code=2).stderr
    history.write_text("{}{")
    assert "not a workflow's history" in folder.outlast("replay", str(history), "--agents", "changed.py", code=2).stderr


def test_doctor_names_paused_and_waiting_runs_with_the_next_step(folder: Folder) -> None:
    paused, waiting = start(folder, "boom"), start(folder, "publish doctored")
    wait_for_status(folder, paused, "paused")
    wait_for_status(folder, waiting, "suspended")
    said = folder.outlast("doctor", "--waiting-hours", "0", code=1).stdout
    assert f"outlast resume {paused}" in said
    assert f"outlast show {waiting}" in said
    kinds = {item["subject"]: item["kind"] for item in folder.read("doctor", code=1)["complaints"]}
    assert kinds[paused] == "paused"
    assert waiting not in kinds
