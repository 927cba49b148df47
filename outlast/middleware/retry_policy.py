"""What ``model_retry`` and ``tool_retry`` share: which errors are tried again, after how long, and what comes last."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias, TypeVar

from outlast.errors import ToolError, clean_text, get_retryable, is_control, matches
from outlast.middleware.compose import describe
from outlast.middleware.contract import HookContext
from outlast.middleware.options import check_finite, check_whole
from outlast.tools import awaited

T = TypeVar("T")
MAX_RETRIES = 1000
"""All of a call's retries go into one history; a run that gave up parks, and can be resumed."""

RetryOn: TypeAlias = type[BaseException] | Sequence[type[BaseException]] | Callable[[Exception], bool] | None
"""A class, several, a function of the error, or None for any error."""

OnFailure: TypeAlias = Literal["error", "continue"] | Callable[[Exception], str | Awaitable[str]]
"""Raise the last error, go on with a text that tells of it, or with the text that a function makes of it."""


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How failures are repeated. Checked when it is made; ``owner`` is the middleware that errors name."""

    owner: str
    max_retries: int = 2
    initial_delay_ms: float = 1000
    backoff_factor: float = 2.0
    max_delay_ms: float = 60_000
    jitter: bool = True
    retry_on: RetryOn = None
    on_failure: OnFailure = "error"

    def __post_init__(self) -> None:
        check_whole(f"{self.owner}: max_retries", self.max_retries, 0)
        if self.max_retries > MAX_RETRIES:
            raise ValueError(f"{self.owner}: max_retries must be at most {MAX_RETRIES:,}, not {self.max_retries!r:.80}")
        for option in ("initial_delay_ms", "backoff_factor", "max_delay_ms"):
            check_finite(f"{self.owner}: {option}", getattr(self, option))
        if not isinstance(self.jitter, bool):
            raise TypeError(f"{self.owner}: jitter must be True or False, not {self.jitter!r:.80}")
        if self.on_failure not in ("error", "continue") and not callable(self.on_failure):
            raise ValueError(
                f"{self.owner}: on_failure must be 'error', 'continue' or a function, not {self.on_failure!r:.80}"
            )
        object.__setattr__(self, "retry_on", _checked_filter(self.owner, self.retry_on))

    def covers(self, error: Exception) -> bool:
        """Whether this error may be tried again: never a control error, then its verdict, then ``retry_on``."""
        if is_control(error):
            return False
        verdict = get_retryable(error)
        if verdict is not None or self.retry_on is None:
            return verdict is not False
        if isinstance(self.retry_on, tuple):
            return matches(error, self.retry_on)
        assert callable(self.retry_on)
        return bool(self.retry_on(error))

    def delay_ms(self, retry: int, error: Exception, random: Random) -> float:
        """How long to wait before this retry (0 is the first); at least as long as the server asked for."""
        try:
            grown = self.initial_delay_ms * (self.backoff_factor**retry if self.backoff_factor else 1)
        except OverflowError:
            grown = math.inf
        delay = min(grown, self.max_delay_ms)
        if self.jitter:
            delay = min(delay * random.uniform(0.75, 1.25), self.max_delay_ms)
        asked = getattr(error, "wait_seconds", None)
        return max(delay, asked * 1000) if isinstance(asked, int | float) and 0 < asked < math.inf else delay

    async def run(
        self,
        attempt: Callable[[], Awaitable[T]],
        give_up: Callable[[str], T],
        what: str,
        ctx: HookContext,
        only_stamped: bool = False,
    ) -> T:
        """The outcome of ``attempt``, repeated as the policy says.

        Args:
            give_up: Makes an outcome of a text, where ``on_failure`` asks for one.
            what: What failed, for the text and the run's watchers.
            only_stamped: Repeat nothing but errors whose verdict is True.
        """
        retry = 0
        while True:
            try:
                return await attempt()
            except Exception as error:
                if not self.covers(error) or (only_stamped and get_retryable(error) is not True):
                    raise
                if retry >= self.max_retries:
                    if self.on_failure == "error":
                        raise
                    return give_up(await self._last_word(what, error))
                failed = error
            delay = self.delay_ms(retry, failed, ctx.random)
            retry += 1
            ctx.emit(f"{what} failed ({type(failed).__name__}); retry {retry} in {delay / 1000:.1f} s")
            if delay > 0:
                await ctx.sleep(delay / 1000)

    async def _last_word(self, what: str, error: Exception) -> str:
        if not callable(self.on_failure):
            times = "once" if self.max_retries == 0 else f"{self.max_retries + 1} times"
            reason = str(error) if isinstance(error, ToolError) else describe(error)
            return clean_text(f"{what} was tried {times}. {reason}")
        text: object = await awaited(self.on_failure(error))
        if not isinstance(text, str):
            raise TypeError(f"{self.owner}: on_failure must return text, not {type(text).__name__}")
        return text


def _checked_filter(owner: str, given: object) -> RetryOn:
    """``retry_on`` with its classes in a tuple."""
    kinds = (given,) if isinstance(given, type) else given
    if isinstance(kinds, Sequence) and all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds
    ):
        return tuple(kinds)
    if kinds is None or callable(kinds):
        return kinds
    raise TypeError(f"{owner}: retry_on must be exception classes, a function of the error, or None, not {given!r:.80}")
