"""Judges that we did not write: the request types of the official SDKs, with unknown fields forbidden."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from anthropic.types import message_create_params as anthropic_params
from google.genai import types as gemini_types
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params
from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError

from outlast.messages import Json

_TYPES: dict[tuple[str, bool], Any] = {
    ("openai_chat", False): chat_params.CompletionCreateParamsNonStreaming,
    ("openai_chat", True): chat_params.CompletionCreateParamsStreaming,
    ("openai_responses", False): responses_params.ResponseCreateParamsNonStreaming,
    ("openai_responses", True): responses_params.ResponseCreateParamsStreaming,
    ("anthropic", False): anthropic_params.MessageCreateParamsNonStreaming,
    ("anthropic", True): anthropic_params.MessageCreateParamsStreaming,
}
_GEMINI: dict[str, Any] = {
    "contents": list[gemini_types.Content],
    "systemInstruction": gemini_types.Content,
    "tools": list[gemini_types.Tool],
    "toolConfig": gemini_types.ToolConfig,
    "generationConfig": gemini_types.GenerationConfig,
}


def check_body(provider: str, body: dict[str, Json], *, stream: bool = False) -> None:
    """Accept a request body only if the provider's own SDK knows every field of it.

    Raises:
        AssertionError: It does not; the error names the places.
    """
    if provider != "gemini":
        try:
            _strict(provider, stream).validate_python(body)
        except ValidationError as error:
            places = "; ".join(
                f"{'.'.join(map(str, each['loc']))[-120:]}: {each['msg']}" for each in error.errors()[:8]
            )
            raise AssertionError(f"{provider} does not know this body: {places}") from None
        return
    unknown = body.keys() - _GEMINI.keys()
    assert not unknown, f"unknown fields: {unknown}"
    for name, value in body.items():
        TypeAdapter(_GEMINI[name]).validate_python(value)


@cache
def _strict(provider: str, stream: bool) -> SchemaValidator:
    schema = copy.deepcopy(TypeAdapter(_TYPES[provider, stream]).core_schema)
    _forbid_extras(schema, set())
    return SchemaValidator(schema)


def _forbid_extras(node: Json, seen: set[int]) -> None:
    if isinstance(node, dict):
        if id(node) in seen:
            return
        seen.add(id(node))
        if node.get("type") == "typed-dict":
            node["extra_behavior"] = "forbid"
        if node.get("type") == "generator":  # lazy in pydantic: it would validate nothing
            node["type"] = "list"
            node.pop("min_length", None)
        for value in list(node.values()):
            _forbid_extras(value, seen)
    elif isinstance(node, list | tuple):
        for value in node:
            _forbid_extras(value, seen)
