"""``show``: one run whole, gathered from wherever it can be had, and how it looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from outlast.approvals import AuditRecord, PendingInterrupt
from outlast.cli.pollers import count_pollers
from outlast.cli.screen import (
    BAD,
    QUIET,
    STRONG,
    WARN,
    age,
    canonical,
    clean,
    compact,
    indented,
    one_line,
    out,
    print_command,
    status_text,
)
from outlast.errors import AgentRunFailed, NoAnswer
from outlast.messages import Json, Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock
from outlast.run import Run, RunInfo
from outlast.state import RunResult
from outlast.usage import Usage

_RESULT_CHARACTERS = 600


@dataclass(frozen=True)
class RunView:
    """A run as it is shown.

    Attributes:
        result: The run so far, or its end; None where nobody could tell.
        pending: With whole arguments.
        note: What could not be had, and why.
    """

    info: RunInfo
    result: RunResult | None
    pending: Sequence[PendingInterrupt]
    note: str = ""

    def as_json(self) -> Json:
        """For programs."""
        result = self.result.model_dump(mode="json", exclude_none=True) if self.result is not None else None
        pending: list[Json] = [item.model_dump(mode="json") for item in self.pending]
        return {"run": self.info.model_dump(mode="json"), "pending": pending, "result": result, "note": self.note}


async def gather(run: Run) -> RunView:
    """Everything there is; a run that has ended needs no worker.

    Raises:
        RunNotFound: There is no such run.
    """
    info = await run.info()
    if info.temporal_status != "RUNNING":
        return RunView(info, *await _ended(run))
    described = await run.temporal.get_workflow_handle(run.id).describe()
    if await count_pollers(run.temporal, described.task_queue) == 0:
        return RunView(info, None, (), f"no worker serves its task queue {described.task_queue!r}: no transcript now")
    try:
        pending = await run.pending() if info.pending_count else []
        return RunView(info, await run.snapshot(), pending)
    except NoAnswer as error:
        return RunView(info, None, (), str(error))


async def _ended(run: Run) -> tuple[RunResult | None, Sequence[PendingInterrupt], str]:
    try:
        result: RunResult | None = await run.result()
        note = ""
    except AgentRunFailed as error:
        result, note = error.result, str(error)
    if result is not None and result.messages_omitted:
        try:
            result = result.replace(messages=tuple(await run.messages()))
        except NoAnswer as error:
            note = str(error)
    return result, (), note


def render(view: RunView) -> None:
    """Print it."""
    info, result, screen = view.info, view.result, out()
    status = status_text(info.status, info.temporal_status)
    screen.print(Text.assemble((clean(info.id), STRONG), "  ", status))
    facts = [clean(info.agent), f"step {info.step}", f"started {age(info.started_at)} ago"]
    facts += [_tokens(result.usage)] if result is not None else []
    screen.print(Text(" · ".join(facts), QUIET))
    if info.error:
        screen.print(indented(Text.assemble("\n", (clean(info.error), BAD))))
    if info.status == "paused" and info.temporal_status == "RUNNING":
        screen.print()
        print_command(f"outlast resume {clean(info.id)}", 2)
    if view.note and view.note != info.error:
        screen.print(indented(f"\n{clean(view.note)}", style=WARN))
    _render_pending(view)
    if result is not None:
        _render_transcript(result.messages)
        _render_state(result)
        _render_audit(result.audit)


def _tokens(usage: Usage) -> str:
    calls = usage.model_calls
    return f"{calls} model call{'s' * (calls != 1)}, {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"


def _title(text: str) -> None:
    out().print(Text(f"\n{text}", QUIET))


def _render_pending(view: RunView) -> None:
    if view.info.pending_count and not view.pending:
        _title("waiting for a decision (arguments are cut here)")
        for preview in view.info.pending:
            out().print(indented(f"{clean(preview.tool)} {one_line(preview.args, 400)}"))
        return
    if view.pending:
        _title("waiting for a decision")
    several = len(view.pending) > 1
    for item in view.pending:
        print_pending(item)
        which = f" {clean(item.tool_call_id)}" if several else ""
        print_command(f"outlast approve {clean(view.info.id)}{which}")


def print_pending(item: PendingInterrupt) -> None:
    """One pending interrupt: the whole arguments first, what is said about it after."""
    screen = out()
    asker = f"  asked by sub-agent {clean(' / '.join(item.path))}" if item.path else ""
    screen.print(Text.assemble("  ", (clean(item.tool), STRONG), (f"  {clean(item.tool_call_id)}{asker}", QUIET)))
    screen.print(indented(canonical(item.args), 4))
    if item.description:
        screen.print(indented(Text.assemble(("says  ", QUIET), clean(item.description)), 4))
    allowed = ", ".join(map(clean, item.allowed_decisions))
    expiry = f"; {clean(item.on_timeout)} at {item.expires_at:%Y-%m-%d %H:%M} UTC" if item.expires_at else ""
    screen.print(Text(f"    since {age(item.requested_at)}; {allowed}{expiry}", QUIET))


def _render_transcript(messages: Iterable[Message]) -> None:
    messages = list(messages)
    if messages:
        _title("transcript")
    for message in messages:
        for line in _lines(message):
            out().print(line, soft_wrap=True)


def _lines(message: Message) -> Iterable[Text]:
    for block in message.blocks:
        if isinstance(block, TextBlock):
            content = Text(clean(block.text))
        elif isinstance(block, ToolCallBlock):
            args, fault = block.parse_args()
            shown = clean(block.raw_args) if fault is not None else compact(args, 2000)
            content = Text.assemble((f"{clean(block.name)} ", STRONG), shown)
        elif isinstance(block, ToolResultBlock):
            content = _result(block)
        elif isinstance(block, ReasoningBlock):
            content = Text(one_line(block.text), QUIET)
        else:
            content = Text(f"[{block.kind}]", QUIET)
        yield indented(content, 14, label=f"  {message.role}")


def _result(block: ToolResultBlock) -> Text:
    text = clean(block.text)
    cut = f" … {len(text) - _RESULT_CHARACTERS:,} more characters" if len(text) > _RESULT_CHARACTERS else ""
    shown = Text.assemble((f"{clean(block.name)} ", STRONG))
    if block.status != "executed" or block.is_error:
        shown.append(f"{block.status if block.status != 'executed' else 'error'} ", WARN)
    if block.executed_args is not None:
        shown.append(f"ran as {clean(block.executed_name)} {clean(block.executed_args)} ", WARN)
    return shown.append(text[:_RESULT_CHARACTERS]).append(cut, QUIET)


def _render_state(result: RunResult) -> None:
    if result.invocation_state:
        _title("invocation_state")
        out().print(indented(canonical(result.invocation_state)))
    if result.status == "completed" and not isinstance(result.output, str):
        _title("output")
        out().print(indented(canonical(result.output)))


def _render_audit(audit: Sequence[AuditRecord]) -> None:
    if audit:
        _title("decisions (UTC)")
    for record in audit:
        decision = record.decision
        line = Text.assemble(
            f"{clean(decision.by) or 'somebody'} ",
            (f"{decision.kind} ", WARN if decision.kind != "approve" else "green"),
            (clean(record.tool), STRONG),
            f" {compact(record.shown_args, 2000)}",
        )
        for label, text in (("reason", decision.reason), ("comment", decision.comment)):
            if text:
                line.append(f"\n{label}: {clean(text)}")
        if decision.args is not None:
            line.append(f"\nto {compact(decision.args, 2000)}")
        out().print(indented(line, 20, label=f"  {record.at:%m-%d %H:%M:%S}"))
