"""What went wrong at a provider, as the one :class:`ModelError` subclass that names it. Pure: no I/O, no HTTP library.

Providers describe the same failure in many shapes. Here every shape becomes a :class:`Failure` (status,
names, detail), and :func:`classify` picks the class: first by the names the provider used, then by the
status. Texts are masked before they enter an exception: neither API keys nor prompts may reach a log.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from outlast.errors import (
    AuthenticationFailed,
    ConnectionFault,
    ContentBlocked,
    ContextOverflow,
    InvalidRequest,
    MalformedResponse,
    ModelError,
    ModelTimeout,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    ServerFault,
    UnknownModel,
)
from outlast.messages import Json

_BY_NAME: tuple[tuple[type[ModelError], frozenset[str]], ...] = (
    (
        ContextOverflow,
        frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"}),
    ),
    (QuotaExhausted, frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached"})),
    (
        ContentBlocked,
        frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation", "invalid_prompt"}),
    ),
    (
        AuthenticationFailed,
        frozenset(
            {
                "api_key_invalid", "invalid_api_key", "authentication_error", "permission_error", "permission_denied",
                "unauthenticated", "unauthorized",
            }
        ),
    ),
    (UnknownModel, frozenset({"model_not_found"})),
    (
        Overloaded,
        frozenset({"overloaded_error", "unavailable", "unavailable_error", "slow_down", "server_is_overloaded"}),
    ),
    (RateLimited, frozenset({"rate_limit_error", "rate_limit_exceeded", "resource_exhausted", "too_many_requests"})),
    (ModelTimeout, frozenset({"timeout_error", "deadline_exceeded", "request_timeout"})),
)  # fmt: skip

_BY_STATUS: Mapping[int, type[ModelError]] = {
    401: AuthenticationFailed,
    402: QuotaExhausted,
    403: AuthenticationFailed,
    404: UnknownModel,
    408: ModelTimeout,
    409: ServerFault,
    429: RateLimited,
    503: Overloaded,
    504: ModelTimeout,
    529: Overloaded,
}

_BY_TEXT: tuple[tuple[type[ModelError], re.Pattern[str]], ...] = (
    (
        ContextOverflow,
        re.compile(
            r"maximum context length|context[ _](window|length)|prompt is too long|available context size|"
            r"input token count.*exceeds|too many (input )?tokens"
        ),
    ),
    (QuotaExhausted, re.compile(r"credit balance is too low")),
    (ContentBlocked, re.compile(r"content filtering policy|content management policy|usage policy")),
    (AuthenticationFailed, re.compile(r"api key (not valid|expired|not found)|invalid api key")),
    (Overloaded, re.compile(r"^loading model$|^overloaded$")),
)
_TEXT_STATUSES = frozenset({None, 200, 400, 413, 422, 500})

_PLAIN: Mapping[type[ModelError], tuple[str, str]] = {
    RateLimited: ("too many requests for now", "Wait, then try again"),
    Overloaded: ("no capacity at the moment", "Try again in a while, or fall back to another model"),
    ServerFault: ("the provider failed", "Try again; if it goes on, look at the provider's status page"),
    ModelTimeout: ("no answer in time", "Try again, or raise the model's timeout"),
    ConnectionFault: ("no connection", "Check the base URL and the network of the worker"),
    AuthenticationFailed: ("access refused", "Set a valid key in {key_env} in the worker's environment"),
    InvalidRequest: ("the request was refused", "Correct the request; repeating it will not help"),
    ContextOverflow: ("the conversation is longer than the context window", "Shorten or summarize the transcript"),
    QuotaExhausted: ("the account's quota is used up", "Add credit at the provider; waiting does not help"),
    ContentBlocked: ("the provider blocked the content", "Change the content, or ask another model"),
    UnknownModel: ("no such model or address", "Check the model's name and the base URL"),
    MalformedResponse: ("the answer is not in the provider's format", "Check that the base URL speaks this API"),
}

_KEYLIKE = re.compile(r"\b(?:sk|rk|pk|gsk|xai|AIza)[-_A-Za-z0-9*]{6,}|Bearer\s+\S+|[A-Za-z0-9+/=_*-]{40,}")
_HIDDEN = "[...]"
_DETAIL_CHARS = 300
_WINDOW = 16


@dataclass(frozen=True)
class Failure:
    """What a provider said about a failure.

    Attributes:
        status: The HTTP status, or None for an event inside a stream.
        names: Its codes, types and reasons, in the provider's order.
        detail: Its sentence.
        wait_seconds: A wait hint found in the body (Gemini's ``RetryInfo``).
    """

    status: int | None = None
    names: tuple[str, ...] = ()
    detail: str = ""
    wait_seconds: float | None = None


def read_failure(status: int | None, payload: Json) -> Failure:
    """A failure from a decoded body, in any known shape; from plain text too.

    Shapes: OpenAI ``{"error": {message, type, code}}``, Anthropic ``{"type": "error", "error": {type, message}}``,
    Gemini ``{"error": {code, status, message, details}}`` (in a list when streamed), vLLM's flat
    ``{"object": "error", ...}``, Ollama's ``{"error": "..."}``, Responses' ``{"type": "error", code, message}``.
    """
    if isinstance(payload, list):
        payload = next((item for item in payload if isinstance(item, dict)), {})
    if not isinstance(payload, dict):
        return Failure(status=status, detail=str(payload or ""))
    error = payload.get("error") or payload
    if not isinstance(error, dict):
        return Failure(status=status, detail=str(error))
    code = error.get("code")
    if status is None and isinstance(code, int) and 400 <= code < 600:
        status = code
    details = error.get("details")
    records = [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    inner = error.get("innererror")
    named = [code, error.get("type"), error.get("status"), *(record.get("reason") for record in records)]
    if isinstance(inner, dict):
        named.append(inner.get("code"))
    waits = [wait for record in records if (wait := _duration(record.get("retryDelay"))) is not None]
    detail = error.get("message") or error.get("detail") or ""
    return Failure(
        status=status,
        names=tuple(name for name in named if isinstance(name, str) and name != "error"),
        detail=detail if isinstance(detail, str) else json.dumps(detail),
        wait_seconds=max(waits, default=None),
    )


def classify(failure: Failure) -> type[ModelError]:
    """The class for a failure: by the provider's names, by tell-tale sentences, then by status."""
    names = {name.lower() for name in failure.names}
    for kind, known in _BY_NAME:
        if names & known:
            return kind
    if failure.status in _TEXT_STATUSES:
        for kind, pattern in _BY_TEXT:
            if pattern.search(failure.detail.lower().strip()):
                return kind
    if failure.status == 404 and "item with id" in failure.detail.lower():
        return InvalidRequest
    if failure.status is not None and failure.status in _BY_STATUS:
        return _BY_STATUS[failure.status]
    if failure.status is None and names & {"invalid_request_error", "invalid_argument"}:
        return InvalidRequest
    return InvalidRequest if failure.status is not None and 300 <= failure.status < 500 else ServerFault


def wait_hint(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds that an error's headers ask to wait: ``retry-after-ms``, then ``retry-after`` (seconds or HTTP date).

    A zero is no hint. Only ever asked for errors: some providers send ``retry-after`` with a 200.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds or None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    left = date.timestamp() - (time.time() if now is None else now)
    return left if left > 0 else None


@dataclass(frozen=True, kw_only=True)
class Reporter:
    """Makes the exceptions of one call; knows what must never be in them.

    Attributes:
        provider, model: Whom the call went to.
        key_env: The environment variable that should hold the key.
        secrets: Texts that are masked wherever they appear.
        private: The prompts: stretches of them are masked in what the provider says.
    """

    provider: str
    model: str
    key_env: str = ""
    secrets: Sequence[str] = field(default=(), repr=False)
    private: Sequence[str] = field(default=(), repr=False)

    def answered(self, status: int, headers: Mapping[str, str], body: str) -> ModelError:
        """The exception for an answer that is not a success; ``x-should-retry`` overrules the verdict."""
        try:
            payload = json.loads(body)
        except (ValueError, RecursionError):
            payload = "" if "<" in body[:100] else body
        wish = headers.get("x-should-retry", "").lower()
        failure = read_failure(status, payload)
        return self.build(
            classify(failure),
            failure,
            wait=wait_hint(headers) or failure.wait_seconds,
            retryable={"true": True, "false": False}.get(wish),
            request_id=headers.get("x-request-id") or headers.get("request-id") or "",
        )

    def event(self, payload: Json) -> ModelError:
        """The exception for an error inside a stream, or inside a body that came with status 200."""
        failure = read_failure(None, payload)
        return self.build(classify(failure), failure, wait=failure.wait_seconds)

    def truncated(self) -> ModelError:
        """The exception for a stream that ended before the answer was complete."""
        return self.build(ServerFault, Failure(names=("TruncatedStream",), detail="the stream broke off"))

    def malformed(self, why: str) -> ModelError:
        """The exception for an answer that cannot be read."""
        return self.build(MalformedResponse, Failure(names=("MalformedResponse",), detail=why))

    def build(
        self,
        kind: type[ModelError],
        failure: Failure,
        *,
        wait: float | None = None,
        retryable: bool | None = None,
        request_id: str = "",
    ) -> ModelError:
        """An exception that says who, what, why and the next step."""
        what, step = _PLAIN[kind]
        status = f"HTTP {failure.status}" if failure.status else ""
        tags = ", ".join(filter(None, (status, *dict.fromkeys(failure.names), request_id)))
        detail = self.mask(failure.detail)
        parts = [f"{self.provider}:{self.model}: {what}", f" [{self.mask(tags)}]" if tags else ""]
        parts.append(f": {detail.rstrip('.')}" if detail else "")
        step = step.format(key_env=self.key_env or "the api_key option")
        asked = f" The server asks to wait {wait:g} s." if wait else ""
        return kind(
            f"{''.join(parts)}.{asked} {step}.",
            provider=self.provider,
            status=failure.status,
            wait_seconds=wait,
            error_class=failure.names[0] if failure.names else "",
            retryable=retryable,
        )

    def mask(self, text: str) -> str:
        """The text on one line, cut, without keys, without stretches of the prompts."""
        line = " ".join("".join(char if char.isprintable() else " " for char in text).split())[: 4 * _DETAIL_CHARS]
        for secret in self.secrets:
            line = line.replace(secret, _HIDDEN) if secret else line
        line = "".join(_hide(_KEYLIKE.sub(_HIDDEN, line), self.private))
        return line if len(line) <= _DETAIL_CHARS else f"{line[:_DETAIL_CHARS]}..."


def _hide(line: str, private: Sequence[str]) -> Iterator[str]:
    texts = [" ".join(text.split()) for text in private]
    for text in sorted((text for text in texts if 8 <= len(text) < _WINDOW), key=len, reverse=True):
        line = line.replace(text, _HIDDEN)
    haystack = "\0".join(texts)
    covered = 0
    for index, char in enumerate(line):
        if len(line) - index >= _WINDOW and line[index : index + _WINDOW] in haystack:
            if index >= covered:
                yield _HIDDEN
            covered = index + _WINDOW
        if index >= covered:
            yield char


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _duration(value: Json) -> float | None:
    return _number(value[:-1]) if isinstance(value, str) and value.endswith("s") else None
