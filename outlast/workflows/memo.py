"""The status that a run publishes in its memo: listing a thousand waiting runs is one query and wakes none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from temporalio import workflow

from outlast.approvals import PendingInterrupt
from outlast.state import RunState, RunStatus
from outlast.unreadable import is_tombstone

MEMO_KEY = "outlast"
_PREVIEW = 300
_LISTED = 10
_CHANGES = 20


class PendingPreview(BaseModel):
    """A pending interrupt in a list; arguments are cut, the run's own query has them whole.

    Attributes:
        args: JSON text, at most 300 characters; ``cut`` tells how long it really is.
    """

    tool_call_id: str
    tool: str
    args: str = ""
    cut: int = 0
    allowed_decisions: tuple[str, ...] = ()
    description: str = ""
    requested_at: datetime | None = None
    expires_at: datetime | None = None
    path: tuple[str, ...] = ()


class RunSummary(BaseModel):
    """What a list of runs shows of one.

    Attributes:
        pending_count: All pending interrupts; ``pending`` has the first ten.
        error: Where and why it is paused or failed.
    """

    agent: str
    status: RunStatus
    step: int = 0
    pending: tuple[PendingPreview, ...] = ()
    pending_count: int = 0
    error: str = ""


def summary(state: RunState) -> RunSummary:
    """The summary of a state."""
    error = ""
    if state.pause is not None:
        error = f"{state.pause.where}: {state.pause.error}"
    elif state.failure is not None:
        error = ": ".join(state.failure)
    return RunSummary(
        agent=state.agent,
        status=state.status,
        step=state.step,
        pending=tuple(_preview(item) for item in state.pending[:_LISTED]),
        pending_count=len(state.pending),
        error=error[:_PREVIEW],
    )


def published_summary(memo: Mapping[str, Any]) -> Mapping[str, Any]:
    """A decoded memo as the fields of :class:`RunSummary`; says so where it cannot be read or is not there."""
    found = memo.get(MEMO_KEY)
    if is_tombstone(found):
        return {"agent": "?", "status": "running", "error": f"it cannot be read here: {found['reason']}"}
    return found if isinstance(found, Mapping) else {"agent": "?", "status": "running"}


def _preview(item: PendingInterrupt) -> PendingPreview:
    args = json.dumps(item.args, ensure_ascii=False)
    return PendingPreview(
        tool_call_id=item.tool_call_id,
        tool=item.tool,
        args=args[:_PREVIEW],
        cut=len(args) if len(args) > _PREVIEW else 0,
        allowed_decisions=item.allowed_decisions,
        description=item.description[:_PREVIEW],
        requested_at=item.requested_at,
        expires_at=item.expires_at,
        path=item.path,
    )


class PublishedMemo:
    """The memo as this execution last published it.

    Attributes:
        lags: It was to change more often than one task may change it, and says what was so before.
    """

    def __init__(self) -> None:
        self.lags = False
        self._text = ""
        self._task, self._changes = 0, 0

    def publish(self, state: RunState) -> None:
        """Upsert the memo unless it already says so.

        Five hundred questions in one task would be as many memos in one request, and the end of the run.
        """
        text = summary(state).model_dump_json(exclude_defaults=True)
        task = workflow.info().get_current_history_length()
        if task != self._task:
            self._task, self._changes = task, 0
        self.lags = text != self._text and self._changes >= _CHANGES
        if text != self._text and not self.lags:
            workflow.upsert_memo({MEMO_KEY: json.loads(text)})
            self._text = text
            self._changes += 1
