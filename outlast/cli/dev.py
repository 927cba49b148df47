"""``outlast dev``: a server, a worker and its storage on this machine, kept in one folder.

The server and the worker are child processes. On Linux the kernel ends the server with us; the worker holds one end of
a socket and ends when ours is closed, however that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.command import BAD_INPUT, DONE, FAILED, INTERRUPTED, register
from outlast.cli.workers import Places

if TYPE_CHECKING:
    from outlast.dev_folder import DevNote
    from outlast.devserver import DevServer

_LOOK_SECONDS = 0.4
_QUICK_DEATH_SECONDS = 5.0
_MAX_QUICK_DEATHS = 3
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_MAX_FILES = 5000


def add(app: typer.Typer) -> None:
    """Add this module's command."""
    register(app, dev)


async def dev(
    agents: Places,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the server; 0 for a free one.")] = 7233,
    ui_port: Annotated[int, typer.Option(min=0, max=65535, help="Of Temporal's web UI; 0 for a free one.")] = 8233,
    ui: Annotated[bool, typer.Option("--ui/--no-ui", help="Serve Temporal's web UI.")] = True,
    reload: Annotated[bool, typer.Option("--reload", help="Start the worker again when a .py file changes.")] = False,
    state: Annotated[Path, typer.Option(help="The folder that keeps everything.")] = Path(".outlast"),
    task_queue: Annotated[str | None, typer.Option(help="Where the worker looks for runs.", show_default=False)] = None,
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Encrypt what runs say, with a key kept in the state folder.")
    ] = False,
) -> int:
    """Run a server, its web UI and a worker on this machine.

    Everything is kept in one folder, so runs go on at the next start.
    """
    from outlast.dev_folder import claim, key_file
    from outlast.devserver import DevServer

    server = DevServer(
        port=port, db_filename=state / "temporal.db", ui=ui, ui_port=ui_port, log_file=state / "server.log"
    )
    with claim(state) as note:
        keys = key_file(state, encrypt)
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        workers = _Workers(agents, reload)
        with _stopping(loop, stop, workers, server):
            workers.start()
            try:
                await server.start()
                return await _supervise(server, workers, note, state, task_queue, keys, stop)
            finally:
                await workers.stop()
                await server.stop()


async def _supervise(
    server: DevServer,
    workers: _Workers,
    note: Path,
    state: Path,
    task_queue: str | None,
    keys: str | None,
    stop: asyncio.Event,
) -> int:
    """Until the end; returns the exit code."""
    from outlast.dev_folder import DevNote, storage_url, write_note
    from outlast.settings import DEFAULT_TASK_QUEUE

    queue = task_queue or os.environ.get("OUTLAST_TASK_QUEUE") or DEFAULT_TASK_QUEUE
    place = DevNote(
        address=server.address,
        namespace=server.namespace,
        task_queue=queue,
        storage=storage_url(state),
        ui=server.ui_url,
        key_file=keys,
        agents=list(workers.places),
    )
    write_note(note, place)
    workers.place = place
    workers.send_place()
    told = False
    while not stop.is_set():
        if server.pid is None:
            say_error(f"the Temporal server has ended; its log is {state / 'server.log'}")
            return FAILED
        code = workers.look()
        if code is not None:
            return code
        if workers.private != place.private:
            place = dataclasses.replace(place, private=workers.private)
            write_note(note, place)
        if workers.ready is not None and not told:
            told = True
            _welcome(place, workers.ready, state, workers.watches)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.05 if not told else _LOOK_SECONDS)
    _tell("\nstopping; Ctrl-C again stops at once")
    return DONE


class _Workers:
    """The worker's process, the next one after a change, and old ones that still finish their calls."""

    def __init__(self, places: Sequence[str], watches: bool) -> None:
        self.places = places
        self.watches = watches
        self.place: DevNote | None = None
        self.ready: list[str] | None = None
        self.private: list[str] | None = None
        self._current: _Worker | None = None
        self._old: list[_Worker] = []
        self._seen = _snapshot(places) if watches else {}
        self._deaths = 0

    def start(self) -> None:
        """A fresh worker."""
        self._current, self.private = _Worker(self.places), None
        self.send_place()

    def send_place(self) -> None:
        """Tell the worker where its server is, once that is known."""
        if self._current is not None and self.place is not None:
            self._current.send(self.place)

    def look(self) -> int | None:
        """Restart what must be; an exit code where it makes no sense to go on."""
        self._old = [worker for worker in self._old if worker.process.poll() is None]
        if self._current is not None:
            told = self._current.told()
            if told is not None:
                self.ready, self.private = list(told), sorted(name for name, private in told.items() if private)
            code = self._current.process.poll()
            if code is not None:
                return self._died(self._current, code)
        if self.watches:
            now = _snapshot(self.places)
            changed = sorted(file for file in now.keys() | self._seen.keys() if now.get(file) != self._seen.get(file))
            if changed:
                self._seen = now
                _tell(f"{Path(changed[0]).name} changed; the worker starts again")
                self._retire()
                self.start()
        return None

    def _died(self, worker: _Worker, code: int) -> int | None:
        self._current = None
        worker.close()
        if code == BAD_INPUT or (self.ready is None and code > 0):
            if not self.watches:
                return code
            _tell("waiting for a change")
            return None
        self._deaths = self._deaths + 1 if time.monotonic() - worker.born < _QUICK_DEATH_SECONDS else 1
        if self._deaths >= _MAX_QUICK_DEATHS:
            say_error(f"the worker ended {self._deaths} times in a row (exit code {code})")
            return FAILED
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        _tell(f"the worker {how}; it starts again, and runs go on where they were")
        self.start()
        return None

    def _retire(self) -> None:
        if self._current is not None:
            self._current.process.terminate()
            self._old.append(self._current)
            self._current = None

    async def stop(self) -> None:
        """Let the workers finish their calls."""
        self._retire()
        for worker in self._old:
            while worker.process.poll() is None:
                await asyncio.sleep(0.02)
            worker.close()

    def kill(self) -> None:
        """End them at once."""
        for worker in [*self._old, *([self._current] if self._current is not None else [])]:
            worker.process.kill()


class _Worker:
    """One worker process, and our end of the socket between us."""

    def __init__(self, places: Sequence[str]) -> None:
        self._line, theirs = socket.socketpair()
        self._line.setblocking(False)
        self._heard = b""
        self.born = time.monotonic()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "outlast.cli.dev_worker", *places],
                stdin=theirs.fileno(),
                start_new_session=True,  # Ctrl-C reaches us alone, and we let the worker finish
            )

    def send(self, place: DevNote) -> None:
        """Where the server is."""
        with contextlib.suppress(OSError):
            self._line.send(json.dumps(dataclasses.asdict(place)).encode() + b"\n")

    def told(self) -> dict[str, bool] | None:
        """The agents' names, and whether each redacts at its edges, once the worker has said that it serves them."""
        with contextlib.suppress(OSError):
            self._heard += self._line.recv(65536)
        return dict(json.loads(self._heard)) if self._heard.endswith(b"\n") else None

    def close(self) -> None:
        """Give up our end."""
        self._line.close()


@contextlib.contextmanager
def _stopping(
    loop: asyncio.AbstractEventLoop, stop: asyncio.Event, workers: _Workers, server: DevServer
) -> Iterator[None]:
    """Signals stop in good order; the second one stops at once."""

    def on_signal() -> None:
        if stop.is_set():
            workers.kill()
            if server.pid is not None:
                os.kill(server.pid, signal.SIGKILL)
            os._exit(INTERRUPTED)
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _snapshot(places: Sequence[str]) -> dict[str, int]:
    """The time of every Python file beside the agents, and below."""
    roots = {Path(place).resolve().parent if place.endswith(".py") else Path.cwd() for place in places}
    found: dict[str, int] = {}
    for root in roots:
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if name not in _SKIPPED and not name.startswith(".")]
            for name in files:
                if name.endswith(".py") and len(found) < _MAX_FILES:
                    path = Path(folder, name)
                    with contextlib.suppress(OSError):
                        found[str(path)] = path.stat().st_mtime_ns
    return found


def _welcome(place: DevNote, names: Sequence[str], state: Path, watches: bool) -> None:
    from rich.text import Text

    from outlast.cli.screen import QUIET, STRONG, clean, out

    screen = out()
    rows = [("agents", ", ".join(map(clean, names))), ("server", f"{place.address}, task queue {place.task_queue}")]
    rows += [("web UI", place.ui)] if place.ui else []
    rows += [("state", f"{state}{os.sep}, kept between starts")]
    rows += [("keys", f"{place.key_file}, what runs say is encrypted")] if place.key_file else []
    rows += [("reload", "on, when a .py file changes")] if watches else []
    screen.print()
    for label, value in rows:
        screen.print(Text.assemble(("  " + label.ljust(9), QUIET), value))
    screen.print(Text("\n  In another terminal, in this folder:\n", QUIET))
    for line in (f'outlast run {clean(names[0])} "Hello" --follow', "outlast pending", "outlast doctor"):
        screen.print(Text(f"    {line}", STRONG))
    screen.print(Text("\n  Ctrl-C stops. Runs go on at the next start.\n", QUIET))


def _tell(line: str) -> None:
    from rich.text import Text

    from outlast.cli.screen import QUIET, out

    out().print(Text(f"  {line}" if line[0] != "\n" else f"\n  {line[1:]}", QUIET))


def say_error(text: str) -> None:
    """As every command does."""
    from outlast.cli.command import say_error as say

    say(text)
