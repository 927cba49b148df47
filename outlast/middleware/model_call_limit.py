"""``model_call_limit``: an upper bound on the model turns of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast.errors import AgentError
from outlast.middleware.contract import HookContext
from outlast.middleware.options import check_whole
from outlast.model import ModelRequest


@dataclass(frozen=True)
class ModelCallLimit:
    """See :func:`model_call_limit`."""

    max_calls: int
    name: str = field(default="model_call_limit")

    def before_model(self, request: ModelRequest, ctx: HookContext) -> None:
        """End the run before the call that would be one too many."""
        if ctx.step > self.max_calls:
            raise AgentError(
                "BUDGET_EXCEEDED",
                f"the run used its {self.max_calls} model calls without finishing; raise model_call_limit(max_calls), "
                "or look at the transcript for a loop",
            )


def model_call_limit(max_calls: int) -> ModelCallLimit:
    """End the run with ``BUDGET_EXCEEDED`` before model call ``max_calls + 1`` (AC-43 to AC-45).

    A call is a turn of the loop, ``ctx.step``: retries, fallbacks and a turn that is repeated after a resume count
    once, and the count goes on after a wait of weeks. 0 allows none.

    Raises:
        ValueError: ``max_calls`` is not a whole number from 0 up.
    """
    check_whole("model_call_limit: max_calls", max_calls, 0)
    return ModelCallLimit(max_calls)
