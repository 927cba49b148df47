"""``model_retry``: a model call that failed is made again, after a durable wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast.messages import assistant
from outlast.middleware.contract import HookContext, ModelNext
from outlast.middleware.retry_policy import OnFailure, RetryOn, RetryPolicy
from outlast.model import Completion, ModelRequest


@dataclass(frozen=True)
class ModelRetry:
    """See :func:`model_retry`."""

    policy: RetryPolicy
    name: str = field(default="model_retry")

    async def wrap_model(self, request: ModelRequest, call_next: ModelNext, ctx: HookContext) -> Completion:
        """Call until it works, the policy is used up, or the error is not one to repeat."""
        return await self.policy.run(lambda: call_next(request), _answer, "The model call", ctx)


def _answer(text: str) -> Completion:
    return Completion(message=assistant(text), finish="error")


def model_retry(
    max_retries: int = 2,
    initial_delay_ms: float = 1000,
    backoff_factor: float = 2.0,
    max_delay_ms: float = 60_000,
    jitter: bool = True,
    retry_on: RetryOn = None,
    on_failure: OnFailure = "error",
    *,
    name: str = "model_retry",
) -> ModelRetry:
    """Retry model calls with exponential backoff on durable timers (AC-29 to AC-36).

    An error whose verdict is False passes untouched, one whose verdict is True is tried again; of the others
    ``retry_on`` decides. ``AgentError``, ``HitlInterrupt`` and cancellation always pass.

    Args:
        max_retries: Calls after the first one.
        initial_delay_ms, backoff_factor, max_delay_ms: Retry n waits ``initial * factor ** (n - 1)``, at most
            ``max_delay_ms``; a factor of 0 keeps the first delay. Where the server asked for more, that long.
        jitter: Vary each wait by up to a quarter, never above ``max_delay_ms``.
        retry_on: A class, several, or a function of the error; classes work for errors of the activity too. None
            retries any error.
        on_failure: When the retries are used up: ``error`` raises the last error, ``continue`` ends the run with a
            message that tells of it, a function (sync or async) makes that message.

    Raises:
        TypeError, ValueError: An option is out of range; the message names it.
    """
    policy = RetryPolicy(
        owner="model_retry",
        max_retries=max_retries,
        initial_delay_ms=initial_delay_ms,
        backoff_factor=backoff_factor,
        max_delay_ms=max_delay_ms,
        jitter=jitter,
        retry_on=retry_on,
        on_failure=on_failure,
    )
    return ModelRetry(policy, name)
