"""A user's folder with agents in it, and the command line run there in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from outlast.dev_folder import DevNote, find_dev

ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("TEMPORAL_", "OUTLAST_"))}

AGENTS = '''
import asyncio
from pathlib import Path

from outlast import Agent, AgentOptions, tool
from outlast.middleware import human_in_the_loop
from outlast.testing import ScriptedModel, call, calls, text

LEDGER = Path(__file__).with_name("ledger.txt")


def note(line):
    with LEDGER.open("a") as ledger:
        ledger.write(line + "\\n")


@tool
def publish(title: str, body: str = "") -> str:
    """Publish."""
    note(f"published {title}")
    return f"published {title}"


@tool
async def slow(seconds: float) -> str:
    """Take some time."""
    note("slow began")
    await asyncio.sleep(seconds)
    note("slow ended")
    return "slept"


@tool
def stubborn(seconds: float) -> str:
    """Block a thread."""
    import time

    note("stubborn began")
    time.sleep(seconds)
    return "done"


def answer(request):
    last = request.messages[-1]
    if last.role == "tool":
        return text(f"Done: {last.tool_results[0].text}")
    verb, _, rest = last.text.partition(" ")
    if verb == "publish":
        return call("publish", title=rest)
    if verb == "twice":
        return calls(call("publish", title=f"{rest} 1"), call("publish", title=f"{rest} 2"))
    if verb in ("slow", "stubborn"):
        return call(verb, seconds=float(rest))
    if verb == "boom":
        return ValueError("boom")
    return text(f"You said: {last.text}")


editor = Agent(
    AgentOptions(
        name="editor",
        model=ScriptedModel([answer] * 10_000),
        tools=[publish, slow, stubborn],
        middleware=[human_in_the_loop({"publish": True})],
    )
)
'''


class Folder:
    """Where a user works.

    Attributes:
        agents: The file with :data:`AGENTS`, under a name of its own so that tests do not share modules.
        ledger: What the tools have done, line by line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.agents = path / f"agents_{uuid.uuid4().hex[:8]}.py"
        self.agents.write_text(AGENTS)
        self.ledger = path / "ledger.txt"

    def done(self) -> list[str]:
        """The ledger's lines."""
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def outlast(
        self, *words: str, code: int | None = 0, environment: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """A command, run to its end; it must exit with ``code``, if one is given."""
        ended = subprocess.run(
            [sys.executable, "-m", "outlast.cli", *words],
            cwd=self.path,
            env={**ENVIRONMENT, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert code in (None, ended.returncode), f"{words}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended

    def read(self, *words: str, code: int | None = 0) -> Any:
        """What a command prints with ``--json``."""
        return json.loads(self.outlast(*words, "--json", code=code).stdout)

    def start(self, *words: str, environment: Mapping[str, str] | None = None) -> Process:
        """A command that goes on, as the leader of a process group of its own, as a shell would start it."""
        return Process([sys.executable, "-m", "outlast.cli", *words], self.path, {**ENVIRONMENT, **(environment or {})})

    @contextmanager
    def dev(self, *words: str) -> Iterator[Process]:
        """``outlast dev`` on free ports, ready; interrupted at the end if it still runs."""
        process = self.start("dev", self.agents.name, "--port", "0", "--ui-port", "0", *words)
        try:
            process.wait_for("Ctrl-C stops")
            yield process
        finally:
            process.end()

    def dev_note(self) -> DevNote:
        """Where the server of the running ``outlast dev`` is."""
        found = find_dev(self.path / ".outlast")
        assert found is not None
        return found


class Process:
    """A command that runs, and what it prints."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._log = folder / f"{uuid.uuid4().hex}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def printed(self) -> str:
        """Everything so far."""
        return self._log.read_text()

    def wait_for(self, text: str, seconds: float = 40) -> None:
        """Until this was printed."""
        wait_until(lambda: text in self.printed() or self.process.poll() is not None, seconds, self.printed)
        assert text in self.printed(), self.printed()

    def descendants(self) -> list[psutil.Process]:
        """Its child processes, and theirs."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def interrupt(self) -> None:
        """Ctrl-C: the terminal signals the whole foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        """Interrupt it if it still runs; the exit code."""
        if self.process.poll() is None:
            self.interrupt()
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def wait_until(condition: Any, seconds: float = 40, explain: Any = lambda: "") -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.05)


def are_gone(processes: list[psutil.Process], seconds: float = 10) -> bool:
    """Whether all of these processes end by themselves."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return not alive
