"""``tool_retry``: a tool that failed is run again, after a durable wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast.middleware.contract import HookContext, ToolNext
from outlast.middleware.options import ToolNames, tool_names
from outlast.middleware.retry_policy import OnFailure, RetryOn, RetryPolicy
from outlast.tools import ToolCall, ToolResult, error_result


@dataclass(frozen=True)
class ToolRetry:
    """See :func:`tool_retry`. ``covers`` holds names, or None for all tools."""

    policy: RetryPolicy
    covers: frozenset[str] | None = None
    name: str = field(default="tool_retry")

    async def around_tool(self, call: ToolCall, call_next: ToolNext, ctx: HookContext) -> ToolResult:
        """Run until it works, the policy is used up, or the error is not one to repeat."""
        if self.covers is not None and call.name not in self.covers:
            return await call_next(call)
        tool = ctx.tool(call.name)
        return await self.policy.run(
            lambda: call_next(call),
            lambda text: error_result(call, text),
            call.name,
            ctx,
            only_stamped=tool is not None and not tool.options.idempotent,
        )


def tool_retry(
    max_retries: int = 2,
    initial_delay_ms: float = 1000,
    backoff_factor: float = 2.0,
    max_delay_ms: float = 60_000,
    jitter: bool = True,
    retry_on: RetryOn = None,
    on_failure: OnFailure = "error",
    tools: ToolNames | None = None,
    *,
    name: str = "tool_retry",
) -> ToolRetry:
    """Retry tools whose body raised, as :func:`~outlast.middleware.model_retry` does model calls (AC-33 to AC-36).

    A tool declared ``idempotent=False`` is run again only after an error that its body stamped retryable: the stamp
    says that nothing has happened yet. A lost worker and a time-out are Temporal's to retry, never this middleware's.

    Args:
        tools: Names, functions or tools that are retried; None for all, an empty list for none.
        on_failure: When the retries are used up: ``error`` raises the last error, which the model reads as an error
            result; ``continue`` gives an error result that tells of the attempts, a function makes its text.

    Raises:
        TypeError, ValueError: An option is out of range; the message names it.
    """
    policy = RetryPolicy(
        owner="tool_retry",
        max_retries=max_retries,
        initial_delay_ms=initial_delay_ms,
        backoff_factor=backoff_factor,
        max_delay_ms=max_delay_ms,
        jitter=jitter,
        retry_on=retry_on,
        on_failure=on_failure,
    )
    return ToolRetry(policy, None if tools is None else tool_names("tool_retry: tools", tools), name)
