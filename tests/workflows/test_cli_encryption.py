"""Keys, encryption and the codec server from the command line, with Temporal's own command line as the reader."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast.devserver import _binary as temporal_program
from outlast.keyring import Keyring, new_key, read_key_file

from .command_line import Folder, wait_until

SECRET = "canary7f3a"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def temporal(address: str, run: str, *words: str) -> bytes:
    """What Temporal's own command line shows of a run's payloads."""
    command = [temporal_program(), "workflow", "show", "--address", address, "--workflow-id", run, "--output", "json"]
    shown = subprocess.run([*command, *words], check=True, capture_output=True, timeout=30).stdout
    return shown + b"".join(base64.b64decode(data) for data in re.findall(rb'"data": "([^"]*)"', shown))


@contextmanager
def codec_server(folder: Folder, *words: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    server = folder.start("codec-server", "--port", "0", *words, environment=environment)
    try:
        server.wait_for("codec server at ")
        yield server.printed().partition("codec server at ")[2].split()[0]
    finally:
        server.interrupt()
        server.process.wait()


def post(url: str, body: Any, **headers: str) -> tuple[int, Any, dict[str, str]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json", **named})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, json.loads(answer.read()), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def test_a_key_is_printed_and_serves_as_the_setting(folder: Folder) -> None:
    made = folder.outlast("key", "--id", "mine").stdout.strip()
    assert Keyring.from_text(made, "").ids == ("mine",)
    assert Keyring.from_text(folder.outlast("key").stdout.strip(), "").ids[0].count("-") == 3


def test_a_key_file_is_rotated_in_two_steps(folder: Folder) -> None:
    file = folder.path / "keys"
    folder.outlast("key", "--file", "keys", "--id", "old")
    said = folder.outlast("key", "--file", "keys", "--id", "new").stdout
    assert read_key_file(file).ids == ("old", "new")
    assert "outlast key --file keys --use new" in said
    folder.outlast("key", "--file", "keys", "--use", "new")
    assert read_key_file(file).ids == ("new", "old")
    assert "has no key 'other'" in folder.outlast("key", "--file", "keys", "--use", "other", code=2).stderr
    assert "earlier key 'old'" in folder.outlast("key", "--file", "keys", "--id", "old", code=2).stderr


def test_a_worker_with_a_wrong_key_says_where_it_stands(folder: Folder) -> None:
    environment = {"OUTLAST_ENCRYPTION_KEYS": f"{new_key('a')},b:c2hvcnQ="}
    said = folder.outlast("worker", folder.agents.name, code=2, environment=environment).stderr
    assert "OUTLAST_ENCRYPTION_KEYS, key 2 ('b') has 5 bytes; a key has exactly 32 (AES-256)" in " ".join(said.split())


def test_dev_encrypts_with_a_key_of_its_own_and_clients_beside_it_read_it(folder: Folder) -> None:
    with folder.dev("--encrypt"):
        note = folder.dev_note()
        folder.outlast("run", "editor", f"publish {SECRET}", "--id", "sealed", "--wait", code=4)
        assert SECRET in folder.outlast("show", "sealed").stdout
        assert SECRET.encode() not in temporal(note.address, "sealed")
        with codec_server(folder) as url:
            assert SECRET.encode() in temporal(note.address, "sealed", "--codec-endpoint", url)
            check_codec_server(url, note.ui or "")
    kept = folder.path / ".outlast"
    assert SECRET.encode() not in on_disk(kept)
    with folder.dev("--no-ui"):  # the key is found again without being asked for
        folder.outlast("approve", "sealed")
        wait_until(lambda: f"published {SECRET}" in folder.outlast("show", "sealed").stdout)
        folder.outlast("replay", "sealed", "--agents", folder.agents.name, "--exact")
    assert SECRET.encode() not in on_disk(kept)


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def check_codec_server(url: str, ui: str) -> None:
    """Round trip, preflight, foreign origins and hosts, nonsense."""
    plain = {
        "metadata": {"encoding": base64.b64encode(b"json/plain").decode()},
        "data": base64.b64encode(b'"x"').decode(),
    }
    status, sealed, _ = post(f"{url}/encode", {"payloads": [plain]}, Origin=ui)
    assert status == 200
    assert base64.b64decode(sealed["payloads"][0]["metadata"]["encoding"]) == b"binary/encrypted"
    status, opened, headers = post(f"{url}/decode", {"payloads": [*sealed["payloads"], plain]}, Origin=ui)
    assert (status, opened) == (200, {"payloads": [plain, plain]})
    assert headers["access-control-allow-origin"] == ui
    asked = urllib.request.Request(f"{url}/decode", method="OPTIONS")
    asked.add_header("Origin", ui)
    asked.add_header("Access-Control-Request-Method", "POST")
    asked.add_header("Access-Control-Request-Headers", "content-type,x-namespace,authorization")
    with urllib.request.urlopen(asked, timeout=10) as answer:
        assert answer.headers["access-control-allow-origin"] == ui
    status, _, headers = post(f"{url}/decode", sealed, Origin="https://evil.example")
    assert (status, headers.get("access-control-allow-origin")) == (403, None)
    assert post(f"{url}/decode", sealed, Host="evil.example")[0] == 400
    for nonsense in (b"", b"{", b"null", b'{"payloads": 7}', b"\xff", b"[" * 5000):
        assert post(f"{url}/decode", nonsense)[0] == 400
    forged = {"metadata": {"encoding": in_base64(b"binary/encrypted")}, "data": "AAAA"}
    [answer] = post(f"{url}/decode", {"payloads": [forged]})[1]["payloads"]
    assert b"missing object" in base64.b64decode(answer["data"])


def test_a_token_is_wanted_where_one_is_set_and_on_every_network(folder: Folder) -> None:
    environment = {"OUTLAST_ENCRYPTION_KEYS": new_key("a"), "OUTLAST_CODEC_TOKEN": "let-me-in"}
    with codec_server(folder, environment=environment) as url:
        assert post(f"{url}/decode", {"payloads": []})[0] == 401
        assert post(f"{url}/decode", {"payloads": []}, Authorization="Bearer wrong")[0] == 401
        assert post(f"{url}/decode", {"payloads": []}, Authorization="Bearer let-me-in")[0] == 200
    del environment["OUTLAST_CODEC_TOKEN"]
    said = folder.outlast("codec-server", "--host", "0.0.0.0", code=2, environment=environment).stderr
    assert "would show every run to whoever reaches it" in " ".join(said.split())
    assert "there are no keys" in folder.outlast("codec-server", code=2).stderr
    said = folder.outlast("codec-server", "--origin", "*", code=2, environment=environment).stderr
    assert "is not an origin" in said
