"""``outlast worker`` and ``run_worker``: graceful ends, health, and starts that are refused."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from outlast.client import Client
from outlast.devserver import DevServer
from outlast.errors import OutlastError
from outlast.settings import Settings, connect
from outlast.worker import load_agents, run_worker

from .command_line import Folder, Process, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
async def server(local_server: DevServer) -> DevServer:
    return local_server


def start_worker(folder: Folder, server: DevServer, queue: str, *words: str) -> Process:
    """A worker that serves the folder's agents."""
    process = folder.start("worker", folder.agents.name, "--address", server.address, "--task-queue", queue, *words)
    process.wait_for("serving editor")
    return process


def where(server: DevServer, queue: str) -> tuple[str, ...]:
    """The options that name this server and queue."""
    return ("--address", server.address, "--task-queue", queue)


def get(url: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_sigterm_lets_a_tool_of_3_seconds_finish_and_another_worker_ends_the_run(
    folder: Folder, server: DevServer
) -> None:
    worker = start_worker(folder, server, "graceful")
    folder.outlast("run", "editor", "slow 3", "--id", "graceful", *where(server, "graceful"))
    wait_until(lambda: "slow began" in folder.done())
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_for("slow (1)")
    assert worker.process.wait(20) == 0
    assert folder.done() == ["slow began", "slow ended"]
    other = start_worker(folder, server, "graceful")
    assert "Done: slept" in folder.outlast("watch", "graceful", *where(server, "graceful")).stdout
    assert folder.done() == ["slow began", "slow ended"]
    folder.outlast("replay", "graceful", "--agents", folder.agents.name, "--exact", *where(server, "graceful"))
    assert other.end() == 0


def test_a_second_sigterm_ends_it_at_once(folder: Folder, server: DevServer) -> None:
    worker = start_worker(folder, server, "twice")
    folder.outlast("run", "editor", "stubborn 4", "--id", "twice", *where(server, "twice"))
    wait_until(lambda: "stubborn began" in folder.done())
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_for("stubborn (1)")
    began = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(2) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 2
    other = start_worker(folder, server, "twice")
    folder.outlast("abort", "twice", *where(server, "twice"))
    folder.outlast("replay", "twice", "--agents", folder.agents.name, *where(server, "twice"))
    other.end()


def test_health_is_served_and_says_what_runs_and_when_it_stops(folder: Folder, server: DevServer) -> None:
    port = free_port()
    worker = start_worker(folder, server, "health", "--health-port", str(port))
    url = f"http://127.0.0.1:{port}"
    assert get(f"{url}/healthz") == (200, {"status": "alive"})
    assert get(f"{url}/readyz") == (200, {"status": "ready", "task_queue": "health", "calls": {}})
    assert get(f"{url}/other")[0] == 404
    folder.outlast("run", "editor", "slow 3", "--id", "health", *where(server, "health"))
    wait_until(lambda: get(f"{url}/readyz")[1]["calls"] == {"slow": 1})
    worker.process.send_signal(signal.SIGTERM)
    worker.wait_for("stopping once")
    assert get(f"{url}/readyz") == (503, {"status": "stopping", "calls": {"slow": 1}})
    assert get(f"{url}/healthz")[0] == 200
    assert worker.process.wait(20) == 0


def test_a_health_port_in_use_is_one_sentence(folder: Folder, server: DevServer) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = folder.outlast(
            "worker", folder.agents.name, "--health-port", port, *where(server, "taken"), code=2
        ).stderr
    assert f"127.0.0.1:{port}" in said
    assert "--health-port" in said


def test_temporal_debug_is_refused(folder: Folder, server: DevServer) -> None:
    environment = {"TEMPORAL_DEBUG": "1"}
    said = folder.outlast("worker", folder.agents.name, *where(server, "debug"), code=2, environment=environment).stderr
    assert "TEMPORAL_DEBUG" in said
    assert len(said.strip().splitlines()) == 1


def test_an_unreachable_server_is_one_sentence_that_names_the_next_step(folder: Folder) -> None:
    address = f"127.0.0.1:{free_port()}"
    for words in (("worker", folder.agents.name), ("run", "editor", "hi"), ("runs",), ("pending",), ("show", "x")):
        said = folder.outlast(*words, "--address", address, code=5).stderr
        assert address in said
        assert "outlast dev" in said
        assert len(said.strip().splitlines()) == 1
    assert "no server" in folder.outlast("doctor", "--address", address, code=5).stdout


def test_without_a_worker_following_and_the_doctor_say_so(folder: Folder, server: DevServer) -> None:
    follower = folder.start("run", "editor", "Hello", "--id", "unserved", "--follow", *where(server, "unserved"))
    follower.wait_for("no worker serves the task queue 'unserved'")
    said = folder.outlast("doctor", *where(server, "unserved"), code=1).stdout
    assert "1 open run cannot go on" in said
    assert "outlast worker agents.py --task-queue unserved" in said
    worker = start_worker(folder, server, "unserved")
    follower.wait_for("You said: Hello")
    assert follower.end() == 0
    folder.outlast("replay", "unserved", "--agents", folder.agents.name, "--exact", *where(server, "unserved"))
    worker.end()


def test_a_deployment_without_a_current_version_is_found_by_the_doctor(folder: Folder, server: DevServer) -> None:
    environment = {"OUTLAST_DEPLOYMENT": "shop", "OUTLAST_BUILD_ID": "v1"}
    worker = folder.start("worker", folder.agents.name, *where(server, "pinned"), environment=environment)
    worker.wait_for("set-current-version")
    folder.outlast("run", "editor", "Hello", "--id", "pinned", *where(server, "pinned"))
    step = "temporal worker deployment set-current-version --deployment-name shop --build-id v1"

    def told() -> bool:
        complaints = folder.read("doctor", *where(server, "pinned"), code=None)["complaints"]
        return any(item["subject"] == "pinned" and step in item["next_step"] for item in complaints)

    wait_until(told, 60)
    worker.end()
    folder.outlast("replay", "pinned", "--agents", folder.agents.name, *where(server, "pinned"))


async def test_run_worker_stops_when_it_is_told_to_and_can_be_run_inside_a_program(
    folder: Folder, server: DevServer
) -> None:
    settings = Settings.load(address=server.address, task_queue="inside", environ={})
    ready, stop, said = asyncio.Event(), asyncio.Event(), list[str]()
    agents = load_agents(folder.agents)
    running = asyncio.create_task(run_worker(agents, settings, say=said.append, on_ready=ready.set, stop=stop))
    await ready.wait()
    client = Client(await connect(settings), task_queue="inside")
    run = await client.start("editor", "Hello")
    assert (await run.result()).output == "You said: Hello"
    stop.set()
    await running
    assert said[0] == "serving editor"
    assert said[-1] == "stopped"
    from outlast.testing import replay

    await replay(agents, run)


async def test_a_namespace_that_is_not_there_is_named(folder: Folder, server: DevServer) -> None:
    settings = Settings.load(address=server.address, namespace="nowhere", environ={})
    with pytest.raises(OutlastError, match="nowhere"):
        await run_worker(load_agents(folder.agents), dataclasses.replace(settings), say=lambda _line: None)
