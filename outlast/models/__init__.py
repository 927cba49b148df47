"""Models by name. Importing this package loads no HTTP client; the first call of a model does."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from outlast.errors import UnknownModel
from outlast.model import Model

if TYPE_CHECKING:
    from outlast.models.anthropic import Anthropic
    from outlast.models.gemini import Gemini
    from outlast.models.openai_chat import OpenAIChat
    from outlast.models.openai_responses import OpenAIResponses

__all__ = ["Anthropic", "Gemini", "OpenAIChat", "OpenAIResponses", "close", "resolve_model"]

_HOMES = {
    "Anthropic": "outlast.models.anthropic",
    "Gemini": "outlast.models.gemini",
    "OpenAIChat": "outlast.models.openai_chat",
    "OpenAIResponses": "outlast.models.openai_responses",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def resolve_model(name: str) -> Model:
    """The model that a ``prefix:model`` string names; opens nothing and reads no environment.

    ``openai:`` (Responses), ``openai-chat:``, ``anthropic:``, ``gemini:`` or ``google:``; local servers
    without a key: ``ollama:`` (``OLLAMA_HOST``), ``vllm:`` (``VLLM_BASE_URL``), ``llamacpp:`` (``LLAMACPP_BASE_URL``).

    Raises:
        UnknownModel: The prefix is not known, or no model stands after it.
    """
    prefix, _, model = name.partition(":")
    maker = _MAKERS.get(prefix)
    if maker is None or not model:
        known = ", ".join(f"{known}:MODEL" for known in sorted(_MAKERS))
        raise UnknownModel(
            f"the model {name!r} is not known. Known forms: {known}. "
            "Write one of these, or give the agent a Model object of your own.",
            error_class="UnknownModelString",
        )
    return maker(model)


async def close() -> None:
    """Close the connections that models opened in the running event loop; a worker does so when it stops."""
    from outlast.models import _http

    await _http.close()


def _openai(model: str) -> Model:
    from outlast.models.openai_responses import OpenAIResponses

    return OpenAIResponses(model)


def _anthropic(model: str) -> Model:
    from outlast.models.anthropic import Anthropic

    return Anthropic(model)


def _gemini(model: str) -> Model:
    from outlast.models.gemini import Gemini

    return Gemini(model)


def _openai_chat(model: str) -> Model:
    from outlast.models.openai_chat import OpenAIChat

    return OpenAIChat(model)


def _local(provider: str, base_url_env: str, default_url: str) -> Callable[[str], Model]:
    def make(model: str) -> Model:
        from outlast.models.openai_chat import OpenAIChat

        return OpenAIChat(
            model,
            provider=provider,
            api_key_env=f"{provider.upper()}_API_KEY",
            base_url_env=base_url_env,
            default_url=default_url,
            key_required=False,
            max_tokens_field="max_tokens",
        )

    return make


_MAKERS: dict[str, Callable[[str], Model]] = {
    "anthropic": _anthropic,
    "gemini": _gemini,
    "google": _gemini,
    "llamacpp": _local("llamacpp", "LLAMACPP_BASE_URL", "http://127.0.0.1:8080/v1"),
    "ollama": _local("ollama", "OLLAMA_HOST", "http://127.0.0.1:11434/v1"),
    "openai": _openai,
    "openai-chat": _openai_chat,
    "vllm": _local("vllm", "VLLM_BASE_URL", "http://127.0.0.1:8000/v1"),
}
