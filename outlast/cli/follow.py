"""Following one run on the terminal: its events, its tokens as they are written, and how it ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from rich.text import Text

from outlast.cli.command import DONE, FAILED, PAUSED, WAITING, say_note
from outlast.cli.screen import (
    BAD,
    GOOD,
    QUIET,
    STRONG,
    WARN,
    canonical,
    clean,
    compact,
    indented,
    out,
    print_command,
    print_json,
    print_plain,
)
from outlast.errors import AgentRunFailed, AgentRunPaused
from outlast.events import Event
from outlast.messages import Json
from outlast.run import Run, RunInfo
from outlast.state import RunResult
from outlast.watch import TextDelta, WatchEvent

_LOOK_SECONDS = 0.7
_PATIENCE_SECONDS = 4.0


async def follow(run: Run, *, after: int = 0, as_json: bool = False) -> int:
    """Show what happens until the run has ended or parked; returns the exit code."""
    screen = _JsonLines() if as_json else _Screen(run.id)
    events = run.events(after=after, deltas=not as_json)
    while True:
        event, parked = await _next(run, events)
        if parked is not None:
            screen.paused(parked)
            return PAUSED
        if event is None:
            return await _end(run, screen)
        screen.show(event)


async def _next(run: Run, events: AsyncIterator[WatchEvent]) -> tuple[WatchEvent | None, RunInfo | None]:
    """The next event, or the run's status once it has parked; neither at the end."""
    coming = asyncio.ensure_future(anext(events, None))
    waited = 0.0
    try:
        while not (await asyncio.wait({coming}, timeout=_LOOK_SECONDS))[0]:
            info = await run.info()
            if info.status == "paused" and info.temporal_status == "RUNNING":
                return None, info
            waited += _LOOK_SECONDS
            if _PATIENCE_SECONDS <= waited < _PATIENCE_SECONDS + _LOOK_SECONDS:
                await _remark(run, info)
        return coming.result(), None
    finally:
        if not coming.done():
            coming.cancel()


async def _remark(run: Run, info: RunInfo) -> None:
    """Say why nothing happens, where it is for want of a worker."""
    from outlast.cli.pollers import count_pollers

    description = await run.temporal.get_workflow_handle(run.id).describe()
    if info.status == "running" and await count_pollers(run.temporal, description.task_queue) == 0:
        say_note(f"no worker serves the task queue {description.task_queue!r}; start one: outlast worker agents.py")


async def wait(run: Run, *, as_json: bool = False) -> int:
    """Wait without a word; print the answer alone. Returns the exit code, also once a person must decide."""
    screen = _JsonLines() if as_json else _Answer(run.id)
    result = asyncio.ensure_future(run.result())
    try:
        while not (await asyncio.wait({result}, timeout=_LOOK_SECONDS))[0]:
            info = await run.info()
            if info.status == "suspended" and info.temporal_status == "RUNNING":
                screen.waiting(info)
                return WAITING
    finally:
        result.cancel()
    return await _end(run, screen)


async def _end(run: Run, screen: _Answer) -> int:
    try:
        screen.completed(await run.result())
    except AgentRunPaused:
        screen.paused(await run.info())
        return PAUSED
    except AgentRunFailed as error:
        screen.failed(error)
        return FAILED
    return DONE


class _Answer:
    """Prints how a run ended: the answer on standard output, all else on standard error."""

    def __init__(self, run_id: str) -> None:
        self.id = run_id

    def show(self, event: WatchEvent) -> None:
        """Nothing."""

    def completed(self, result: RunResult) -> None:
        """The answer."""
        print_plain(clean(result.output) if isinstance(result.output, str) else canonical(result.output))

    def failed(self, error: AgentRunFailed) -> None:
        """Why."""
        from outlast.cli.command import say_error

        say_error(str(error))

    def paused(self, info: RunInfo) -> None:
        """Why, and what to do."""
        from outlast.cli.command import say_error

        say_error(f"the run is paused: {info.error}")
        say_note(f"fix the cause, then: outlast resume {self.id}")

    def waiting(self, info: RunInfo) -> None:
        """For what, and what to do."""
        tools = ", ".join(item.tool for item in info.pending)
        say_note(f"the run waits for a decision on {tools}: outlast show {self.id}")


class _JsonLines(_Answer):
    """One JSON object per line: the events, then how it ended."""

    def __init__(self) -> None:
        super().__init__("")

    def show(self, event: WatchEvent) -> None:
        """An event."""
        if isinstance(event, Event):
            print_json(event.model_dump(mode="json"))

    def completed(self, result: RunResult) -> None:
        """The whole result."""
        print_json({"status": "completed", "result": result.model_dump(mode="json", exclude_none=True)})

    def failed(self, error: AgentRunFailed) -> None:
        """Code and message."""
        print_json({"status": "failed", "code": error.code, "message": error.message})

    def paused(self, info: RunInfo) -> None:
        """Where and why."""
        print_json({"status": "paused", "error": info.error})

    def waiting(self, info: RunInfo) -> None:
        """What is pending; arguments are cut, `pending RUN --json` has them whole."""
        print_json({"status": "suspended", "pending": [item.model_dump(mode="json") for item in info.pending]})


class _Screen(_Answer):
    """For people: a line per event, tokens as they come."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self._live = ""
        self._open_line = False

    def show(self, event: WatchEvent) -> None:
        """An event or a piece of text."""
        if isinstance(event, TextDelta):
            self._delta(event)
            return
        line = _line(event, self.id)
        if event.kind == "text":
            self._text(str(event.data.get("text", "")))
        elif line is not None:
            self._close_line()
            out().print(line)

    def _delta(self, delta: TextDelta) -> None:
        if delta.reset:
            self._close_line()
            out().print(indented("the model starts again", style=QUIET))
            self._live = ""
        if not self._open_line:
            sys.stdout.write("\n")
        self._live += delta.text
        self._open_line = True
        sys.stdout.write(clean(delta.text))
        sys.stdout.flush()

    def _text(self, text: str) -> None:
        """A finished text: only what was not shown while it was written."""
        if self._live and text.startswith(self._live.rstrip()):
            sys.stdout.write(clean(text[len(self._live) :]))
            self._open_line = True
        else:
            self._close_line()
            sys.stdout.write("\n" + clean(text))
            self._open_line = True
        self._close_line()
        self._live = ""

    def _close_line(self) -> None:
        if self._open_line:
            sys.stdout.write("\n\n")
            sys.stdout.flush()
            self._open_line = False

    def completed(self, result: RunResult) -> None:
        """The answer was shown as it came; structured output is shown as JSON."""
        self._close_line()
        if not isinstance(result.output, str):
            print_plain(canonical(result.output))
        usage = result.usage
        tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        words = f"{result.steps} step{'s' * (result.steps != 1)}, {tokens}"
        out().print(Text.assemble(("completed", GOOD), (f"  {words}", QUIET)))

    def failed(self, error: AgentRunFailed) -> None:
        """Code and message."""
        self._close_line()
        word = "cancelled" if error.code == "CANCELLED" else "failed"
        out().print(Text.assemble((word, BAD), f"  {error.code}: {clean(error.message)}"))

    def paused(self, info: RunInfo) -> None:
        """Where and why, and what to do."""
        self._close_line()
        out().print(Text.assemble(("paused", BAD), f"  {clean(info.error)}"))
        out().print()
        print_command(f"outlast resume {clean(self.id)}", 2)


def _line(event: Event, run_id: str) -> Text | None:
    """What is printed of an event; None where nothing is."""
    data, tool = event.data, clean(event.data.get("tool", ""))
    if event.kind == "tool.started":
        return indented(Text.assemble((tool, STRONG), " ", (_arguments(data), QUIET)), 4, label="  >")
    if event.kind == "tool.finished":
        status = "" if data.get("status") == "executed" else f"{clean(data.get('status', ''))} "
        shown = Text.assemble((tool, STRONG), " ", (status, WARN), (compact_text(data.get("text")), QUIET))
        return indented(shown, 4, label="  <")
    if event.kind == "interrupt.requested":
        asked = Text.assemble(("  ? ", WARN), (tool, STRONG), (" waits for a decision\n", WARN))
        asked.append_text(indented(canonical(data.get("args", {})), 4))
        return asked.append(f"\n    outlast approve {clean(run_id)} {clean(data.get('call_id', ''))}\n", STRONG)
    if event.kind == "interrupt.decided":
        return Text.assemble(("  ! ", WARN), (tool, STRONG), f" {clean(_decided(data))}")
    words: dict[str, str] = {
        "interrupt.reminded": f"still waiting: {tool}",
        "message.received": f"message: {compact_text(data.get('text'))}",
        "input.refused": f"refused: {clean(data.get('name'))}: {compact_text(data.get('reason'))}",
        "run.resumed": f"resumed by {clean(data.get('by') or 'somebody')}",
        "custom": compact_text(data.get("text")) if "text" in data else compact(data),
    }
    return indented(words[event.kind], 4, QUIET) if event.kind in words else None


def _arguments(data: dict[str, Json]) -> str:
    return compact(data["args"]) if "args" in data else ""


def compact_text(value: Json, limit: int = 200) -> str:
    """A text of the run on one line."""
    from outlast.cli.screen import one_line

    return one_line(value if isinstance(value, str) else "" if value is None else str(value), limit)


def _decided(data: dict[str, Json]) -> str:
    by = f" by {data['by']}" if data.get("by") else ""
    kind = str(data.get("decision", "decide"))
    words = {"approve": "approved", "edit": "edited", "reject": "rejected", "suspend": "left waiting"}
    return f"{words.get(kind, kind)}{by}"
