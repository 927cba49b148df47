"""Token counts, normalised so that budgets can add them up whatever the provider."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Usage(BaseModel):
    """Tokens of one model call, or the sum over a run.

    Providers count differently (cached tokens inside or outside the input, reasoning inside or
    outside the output); these totals always include them.

    Attributes:
        input_tokens: All input, cached or not.
        cached_input_tokens: The part of the input read from the provider's cache.
        cache_write_tokens: The part of the input written to the provider's cache.
        output_tokens: All output, reasoning included.
        reasoning_tokens: The part of the output spent on reasoning.
        model_calls: How many calls this sum is over.
    """

    model_config = ConfigDict(frozen=True)

    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    model_calls: int = 0

    @property
    def total_tokens(self) -> int:
        """Input plus output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


def spent_by(error: BaseException) -> Usage | None:
    """What a failed call has used up all the same, where its error knows (AC-41)."""
    try:
        usage = getattr(error, "usage", None)
    except BaseException:  # an attribute may be looked up in any way its class likes
        return None
    return usage if isinstance(usage, Usage) else None
