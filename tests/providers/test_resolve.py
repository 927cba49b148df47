"""Models by name: cheap to make, and nothing is read or opened before a call."""

from __future__ import annotations

import subprocess
import sys

import pytest

from outlast import models
from outlast.errors import AuthenticationFailed, UnknownModel, get_retryable
from outlast.model import Model
from outlast.models import Gemini, OpenAIChat, resolve_model

from .answers import ANSWERS
from .fake_server import FakeServer, json_reply
from .providers import PROVIDERS
from .test_answers import HI

NAMES = {
    "openai:gpt-5.2": "openai:gpt-5.2",
    "openai-chat:gpt-4o": "openai-chat:gpt-4o",
    "anthropic:claude-sonnet-4-5": "anthropic:claude-sonnet-4-5",
    "gemini:gemini-3-pro": "gemini:gemini-3-pro",
    "google:gemini-3-pro": "gemini:gemini-3-pro",
    "ollama:llama3.2:3b": "ollama:llama3.2:3b",
    "vllm:Qwen/Qwen3-8B": "vllm:Qwen/Qwen3-8B",
    "llamacpp:local": "llamacpp:local",
}


@pytest.mark.parametrize(("text", "name"), NAMES.items())
def test_a_string_names_a_model_and_the_model_knows_its_name(text: str, name: str) -> None:
    model = resolve_model(text)
    assert isinstance(model, Model)
    assert model.name == name
    assert resolve_model(model.name).name == name


@pytest.mark.parametrize("text", ["gpt-5", "openai:", "", "mistral:large", ":x"])
def test_an_unknown_string_is_answered_with_the_known_forms_and_the_next_step(text: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        resolve_model(text)
    assert repr(text) in str(caught.value)
    assert "anthropic:MODEL, gemini:MODEL" in str(caught.value)
    assert "Write one of these" in str(caught.value)
    assert get_retryable(caught.value) is False


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("openai:x", "OPENAI_API_KEY"),
        ("openai-chat:x", "OPENAI_API_KEY"),
        ("anthropic:x", "ANTHROPIC_API_KEY"),
        ("gemini:x", "GEMINI_API_KEY or GOOGLE_API_KEY"),
    ],
)
async def test_a_missing_key_is_told_at_the_call_with_the_variable_to_set(text: str, variable: str) -> None:
    with pytest.raises(AuthenticationFailed, match=f"Set {variable} in the worker's environment"):
        await resolve_model(text).complete(HI)


async def test_the_environment_is_read_at_each_call(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = resolve_model("openai-chat:gpt-5.2")
    server.answer(json_reply(ANSWERS["openai_chat"]["text"]))
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1/")
    for key in ("first-key", " second-key\n"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        await model.complete(HI)
    sent = [received.headers["authorization"] for received in server.received]
    assert sent == ["Bearer first-key", "Bearer second-key"]


async def test_googles_other_variable_is_known_too(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "google-key")
    server.answer(json_reply(ANSWERS["gemini"]["text"]))
    await Gemini("gemini-3-pro", base_url=server.url).complete(HI)
    assert server.received[0].headers["x-goog-api-key"] == "google-key"


@pytest.mark.parametrize("form", ["{}", "http://{}", "http://{}/v1", "http://{}/"])
async def test_the_address_of_ollama_may_have_any_usual_form(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", form.format(server.url.removeprefix("http://")))
    server.answer(json_reply(ANSWERS["openai_chat"]["text"]))
    completion = await resolve_model("ollama:llama3.2").complete(HI)
    (received,) = server.received
    assert received.path == "/v1/chat/completions"
    assert "authorization" not in received.headers
    assert completion.message.origin is not None
    assert completion.message.origin.provider == "ollama"


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("box", "http://box:11434/v1"),
        ("https://box.example/ollama/v1", "https://box.example/ollama/v1"),
        ("", "http://127.0.0.1:11434/v1"),
    ],
)
def test_what_the_address_leaves_out_is_filled_in(monkeypatch: pytest.MonkeyPatch, value: str, address: str) -> None:
    monkeypatch.setenv("OLLAMA_HOST", value)
    model = resolve_model("ollama:x")
    assert isinstance(model, OpenAIChat)
    assert model.endpoint.address() == address


def test_making_models_loads_no_http_client_and_opens_no_socket() -> None:
    code = """
import sys
import outlast.models as models
for name in models.__all__:
    getattr(models, name)
def forbid(event, args):
    if event.startswith("socket."):
        raise RuntimeError(event)
sys.addaudithook(forbid)
for name in ("openai:a", "openai-chat:a", "anthropic:a", "gemini:a", "ollama:a", "vllm:a", "llamacpp:a"):
    models.resolve_model(name).name
loaded = {"httpx", "httpx_sse", "httpcore", "anyio"} & set(sys.modules)
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_a_key_does_not_show_in_the_repr_of_a_model() -> None:
    for make in PROVIDERS.values():
        model = make("http://127.0.0.1")
        assert "test-key" not in repr(model.endpoint) + repr(model)


def test_the_public_names_are_sorted_and_exist() -> None:
    assert models.__all__ == sorted(models.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Mistral'"):
        models.Mistral  # noqa: B018
