"""What people may tell a run and ask of it. Every function here is total: a stranger's message can never stop a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from pydantic import ValidationError
from temporalio.common import RawValue

from outlast.approvals import DecisionMessage, parse_decision_message
from outlast.children import take_report
from outlast.errors import DecisionRefused, clean_text
from outlast.execution import Execution
from outlast.messages import Json, Message, dump_messages, load_messages, user
from outlast.state import ChildReport, RunState, check_json
from outlast.unreadable import is_tombstone
from outlast.workflows.memo import summary

COMMANDS = ("decide", "send", "resume", "abort")
BETWEEN_RUNS = ("child_report", "report")
"""What a sub-agent tells its parent, and a parent asks of it."""

QUERIES = ("status", "pending", "events", "messages", "result")
_PAGE_BYTES = 1_000_000
_MAX_INBOX, _MAX_INBOX_BYTES = 100, 8_000_000


class Refused(Exception):
    """The command was not obeyed; the text says why and what would be."""


@dataclass(frozen=True)
class Command:
    """A checked command. One whose id was obeyed before has no name: it changes nothing, and is accepted."""

    name: str
    id: str
    value: Any


def check(state: RunState | None, run: Execution | None, name: str, args: Sequence[RawValue]) -> Command:
    """Parse and check a command without changing anything.

    Raises:
        Refused: It cannot be obeyed.
    """
    if name not in COMMANDS and name not in BETWEEN_RUNS:
        raise Refused(f"a run does not know {clean_text(name, 80)!r}; it knows {', '.join(COMMANDS)}")
    if state is None or state.status in ("completed", "failed", "cancelled"):
        raise Refused("the run is over")
    value = _decode(args)
    command_id = _command_id(value) if name in COMMANDS else ""
    if command_id and command_id in state.seen_ids:
        return Command("", command_id, None)
    try:
        return Command(name, command_id, _CHECKS[name](state, run, value))
    except (DecisionRefused, ValueError, ValidationError) as error:
        raise Refused(f"{name}: {clean_text(str(error), 1000)}") from None


def _command_id(value: object) -> str:
    found = value.get("id") if isinstance(value, Mapping) else None
    return found[:200] if isinstance(found, str) else ""


def _decode(args: Sequence[RawValue]) -> Any:  # noqa: ANN401 - JSON
    if not args:
        return None
    if len(args) > 1:
        raise Refused(f"one JSON value is expected, not {len(args)}")
    encoding = args[0].payload.metadata.get("encoding", b"")
    if encoding == b"binary/null":
        return None
    if encoding != b"json/plain":
        raise Refused(
            f"the value must be JSON (encoding json/plain), not {clean_text(encoding.decode('latin-1'), 40)!r}"
        )
    try:
        value = json.loads(args[0].payload.data)
        if is_tombstone(value):
            raise Refused(f"the value cannot be read: {clean_text(value['reason'], 500)}")
        check_json(value, "the value")  # whatever is obeyed here may become part of the state
    except (ValueError, RecursionError) as error:
        raise Refused(f"the value is not JSON: {type(error).__name__}") from None
    except TypeError as error:
        raise Refused(clean_text(error, 500)) from None
    return value


def named_interrupt(args: Sequence[RawValue]) -> str:
    """The interrupt that a decision names, as far as it can be read."""
    try:
        value = _decode(args)
    except Refused:
        return ""
    return clean_text(str(value.get("interrupt", "")), 500) if isinstance(value, Mapping) else ""


def _check_decide(_state: RunState, run: Execution | None, value: object) -> DecisionMessage:
    message = parse_decision_message(value)
    if run is None:
        raise Refused("the worker does not have this run's agent, so no decision can be checked now; deploy it first")
    run.check_decision(message)
    return message


def _check_send(state: RunState, _run: Execution | None, value: object) -> Message:
    content = value
    if isinstance(value, Mapping):
        unknown = value.keys() - {"text", "message", "id"}
        if unknown:
            raise ValueError(f"unknown field {', '.join(sorted(map(str, unknown)))}; known: text, message, id")
        content = value.get("text", value.get("message"))
    if isinstance(content, str):
        message = user(content)
    else:
        [message] = load_messages([content])  # type: ignore[list-item] # pydantic says what it must be
    if message.role != "user" or not any(getattr(block, "text", True) for block in message.blocks):
        raise ValueError("a message to a run is a text, or one user message with content")
    if len(state.inbox) >= _MAX_INBOX or sum(map(_size, state.inbox)) > _MAX_INBOX_BYTES:
        raise ValueError(f"{len(state.inbox)} messages wait already; let the run read them first")
    return message


def _size(message: Message) -> int:
    return len(dump_messages([message]))


def _check_resume(state: RunState, _run: Execution | None, value: object) -> str:
    if state.pause is None:
        raise ValueError("the run is not paused")
    return _text(value, "by")


def _check_child_report(_state: RunState, _run: Execution | None, value: object) -> ChildReport:
    return ChildReport.model_validate(value)


def _check_report(state: RunState, _run: Execution | None, _value: object) -> None:
    if state.parent is None:
        raise ValueError("this run is nobody's sub-agent")


def _check_abort(_state: RunState, _run: Execution | None, value: object) -> str:
    return _text(value, "reason")


def _text(value: object, key: str) -> str:
    if isinstance(value, Mapping):
        value = value.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"its value is a text, or {{{key!r}: text}}")
    return clean_text(value or "", 1000)


_CHECKS: Mapping[str, Any] = {
    "decide": _check_decide,
    "send": _check_send,
    "resume": _check_resume,
    "abort": _check_abort,
    "child_report": _check_child_report,
    "report": _check_report,
}


def obey(state: RunState, run: Execution | None, command: Command) -> Json:
    """Carry out a checked command; returns what an update's caller is told."""
    value = command.value
    if command.name and state.first_time(command.id):
        match command.name:
            case "send":
                state.inbox.append(value)
            case "resume":
                state.pause = None
                state.status = "running"
            case "abort":
                state.abort = value or "the run was aborted"
        if run is not None:
            _tell(run, command)
    return {"accepted": True}


def _tell(run: Execution, command: Command) -> None:
    """What of a command the running agent and its watchers are told."""
    match command.name:
        case "decide":
            run.decide(command.value)
        case "send":
            run.record("message.received", text=command.value.text[:2000])
        case "resume":
            run.record("run.resumed", by=command.value)
        case "child_report":
            take_report(run, command.value)
        case "report":
            run.ask_report()


def answer(state: RunState | None, run: Execution | None, name: str, args: Sequence[RawValue]) -> Json:
    """The answer to a query. An unknown or malformed query is answered with what would work."""
    if state is None:
        return {"error": "the run has no state: its input could not be read"}
    try:
        value = _decode(args)
    except Refused as refused:
        return {"error": str(refused)}
    options = value if isinstance(value, Mapping) else {}
    if name == "status":
        return summary(state).model_dump(mode="json")
    if name == "pending":
        return [item.model_dump(mode="json") for item in state.pending]
    if name == "events":
        events = state.events.after(_number(options, "after"), 200, _PAGE_BYTES)
        return {"seq": state.events.seq, "events": [event.model_dump(mode="json") for event in events]}
    if name == "messages":
        return _page(state, _number(options, "after"))
    if name == "result":
        return state.result().replace(messages=()).model_dump(mode="json")
    return {"error": f"unknown query {clean_text(name, 80)!r}; known: {', '.join(QUERIES)}"}


def _number(options: Mapping[Any, Any], key: str) -> int:
    value = options.get(key, 0)
    return value if isinstance(value, int) and value > 0 else 0


def _page(state: RunState, after: int) -> Json:
    """Messages from an index on, about a megabyte at most; ``next`` is None at the end.

    Those that are in storage alone are named, with the ``start`` of each part, for the reader to fetch.
    """
    first = state.archive.messages
    if after < first:
        return {"archived": _parts(state, after), "messages": [], "next": first, "total": state.message_count}
    transcript = state.transcript[state.archive.kept + after - first :]
    taken: list[bytes] = []
    size = 0
    for message in transcript:
        data = dump_messages([message])[1:-1]
        if taken and size + len(data) > _PAGE_BYTES:
            break
        taken.append(data)
        size += len(data)
    end = after + len(taken)
    return {
        "messages": json.loads(b"[" + b",".join(taken) + b"]"),
        "next": end if end < state.message_count else None,
        "total": state.message_count,
    }


def _parts(state: RunState, after: int) -> Json:
    """The archived parts that hold messages from this index on."""
    parts = state.archive.parts
    starts = accumulate((part.messages for part in parts), initial=0)
    return [
        {"start": start, **part.model_dump()}
        for start, part in zip(starts, parts, strict=False)
        if start + part.messages > after
    ]
