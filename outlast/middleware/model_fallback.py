"""``model_fallback``: when a model call fails, the next model is asked, with a request that it can read."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast.errors import is_control
from outlast.messages import Message, OpaqueBlock
from outlast.middleware.contract import HookContext, ModelNext
from outlast.middleware.options import check_model
from outlast.model import Completion, Model, ModelRequest


@dataclass(frozen=True)
class ModelFallback:
    """See :func:`model_fallback`."""

    models: tuple[str | Model, ...]
    name: str = field(default="model_fallback")

    async def wrap_model(self, request: ModelRequest, call_next: ModelNext, ctx: HookContext) -> Completion:
        """The agent's own model, then each fallback once, in order; the last error if all fail."""
        try:
            return await call_next(request)
        except Exception as error:
            if is_control(error):
                raise
            last = error
        first = provider_of(request.model or ctx.model)
        for model in self.models:
            ctx.emit(f"the model call failed ({type(last).__name__}); asking {_name(model)}")
            asked = request if provider_of(_name(model)) == first else without_provider_parts(request)
            try:
                return await call_next(asked.replace(model=ctx.model_ref(model)))
            except Exception as error:
                if is_control(error):
                    raise
                last = error
        raise last


def model_fallback(*fallbacks: str | Model) -> ModelFallback:
    """Ask other models when the agent's own fails: first success wins, the last error is raised (AC-37 to AC-42).

    Any failure of the provider moves on, a wrong key or an unknown model too; ``AgentError``, ``HitlInterrupt`` and
    cancellation pass at once. Each fallback goes through the hooks inside this one: a ``model_retry`` registered
    after it retries every model. The transcript goes along, tools that ran are not run again.

    Args:
        fallbacks: Model strings or model objects, best first.

    Raises:
        TypeError, ValueError: None is given, or one is no model.
    """
    if not fallbacks:
        raise ValueError("model_fallback: give at least one model to fall back to, like 'openai:gpt-5'")
    for model in fallbacks:
        check_model("model_fallback: a fallback", model)
    return ModelFallback(fallbacks)


def provider_of(model: str) -> str:
    """The part of ``provider:model`` before the colon."""
    return model.partition(":")[0]


def without_provider_parts(request: ModelRequest) -> ModelRequest:
    """The request for another provider: no ``settings.extra``, no opaque blocks, no extra fields on our own messages.

    What a model has written (signatures, encrypted reasoning, ids) is bound to its origin; a provider leaves out what
    is not its own, and finds it again when it is asked the next time.
    """
    messages = tuple(_neutral(message) for message in request.messages)
    return request.replace(messages=messages, settings=request.settings.replace(extra={}))


def _neutral(message: Message) -> Message:
    if message.origin is not None or not any(block.extra or isinstance(block, OpaqueBlock) for block in message.blocks):
        return message
    kept = (block for block in message.blocks if not isinstance(block, OpaqueBlock))
    return message.replace(blocks=tuple(block.replace(extra=None) if block.extra else block for block in kept))


def _name(model: str | Model) -> str:
    return model if isinstance(model, str) else model.name
