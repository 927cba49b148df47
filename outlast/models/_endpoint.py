"""Where a provider is and how to be let in; resolved when a call is made, never when a model is named.

An agent's module is imported inside the workflow sandbox, so building a model reads no environment,
opens no socket and loads no HTTP library: :mod:`outlast.models._http` is imported by the first call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from outlast.errors import AuthenticationFailed, ModelError
from outlast.messages import Json
from outlast.model import Completion, Delta, DeltaSink, ModelRequest, check_request
from outlast.models._faults import Failure, Reporter
from outlast.models._wire import encode_body, mend, private_texts
from outlast.usage import Usage


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One model at one provider.

    Attributes:
        provider, api: As they are recorded in :class:`outlast.messages.Origin`.
        base_url: The address; an empty one is looked up in ``base_url_env``, then ``default_url`` is used.
        api_key: The key; an empty one is looked up in the variables of ``api_key_env``, in order.
        key_required: Whether a missing key is an error (local servers need none).
        timeout: Seconds without a byte from the provider before the call is given up.
    """

    provider: str
    api: str
    model: str
    default_url: str
    base_url: str | None = None
    base_url_env: str = ""
    api_key: str | None = field(default=None, repr=False)
    api_key_env: tuple[str, ...] = ()
    key_required: bool = True
    timeout: float = 600.0

    def address(self) -> str:
        """The base URL without a slash at the end; ``host:port`` (as in ``OLLAMA_HOST``) becomes a URL.

        A variable without a path gets the path of the default URL.
        """
        found = self.base_url or (os.environ.get(self.base_url_env, "") if self.base_url_env else "")
        if not found:
            return self.default_url
        scheme, sep, rest = found.rstrip("/").rpartition("://")
        host, slash, path = rest.partition("/")
        if self.base_url is None and not slash:
            slash, path = self.default_url.split("://")[1].partition("/")[1:]
        if not sep and ":" not in host:
            host = f"{host}:{self.default_url.rpartition(':')[2].partition('/')[0]}"
        host = host.replace("0.0.0.0", "127.0.0.1", 1) if host.startswith("0.0.0.0") else host
        return f"{scheme or 'http'}://{host}{slash}{path}"

    def key(self, reporter: Reporter) -> str:
        """The API key, or an empty text where none is needed.

        Raises:
            AuthenticationFailed: There is none, or it holds characters that no HTTP header may hold.
        """
        values = (self.api_key, *(os.environ.get(name) for name in self.api_key_env))
        key = next((value.strip() for value in values if value and value.strip()), "")
        if not key and self.key_required:
            names = " or ".join(self.api_key_env) or "the api_key option"
            raise AuthenticationFailed(
                f"{self.provider}:{self.model}: there is no API key. Set {names} in the worker's environment.",
                provider=self.provider,
                error_class="MissingApiKey",
            )
        if not (key.isascii() and key.isprintable()):
            detail = "the API key holds characters that no HTTP header may hold"
            raise reporter.build(AuthenticationFailed, Failure(names=("InvalidApiKey",), detail=detail))
        return key


@dataclass(frozen=True, kw_only=True)
class Call:
    """One HTTP request, ready to be sent, and who reports its failure."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float
    reporter: Reporter


class Assembler(Protocol):
    """Puts the events of a stream together to what the provider would have answered without streaming."""

    def feed(self, event: dict[str, Json]) -> Sequence[Delta]:
        """Take one event in; the deltas it brings."""
        ...

    def response(self) -> dict[str, Json] | None:
        """The whole answer, or None if the stream ended before the answer did."""
        ...

    def so_far(self) -> dict[str, Json]:
        """What has come of the answer beside its content: its usage, where the provider has told it."""
        ...


class Wire(Protocol):
    """A provider's format, without any I/O: what is sent where, and how the answer is read."""

    def path(self, stream: bool) -> str:
        """The path after the base URL."""
        ...

    def headers(self, key: str) -> Mapping[str, str]:
        """The provider's own headers for a key (an empty text for none)."""
        ...

    def render(self, request: ModelRequest, stream: bool = False) -> dict[str, Json]:
        """The request's body."""
        ...

    def parse(self, response: dict[str, Json]) -> Completion:
        """The completion in an answer's body."""
        ...

    def usage(self, response: dict[str, Json]) -> Usage:
        """What an answer, or as much as came of it, says that it has used up."""
        ...

    def assembler(self) -> Assembler:
        """A fresh assembler for one streamed answer."""
        ...


async def exchange(
    endpoint: Endpoint, wire: Wire, request: ModelRequest, on_delta: DeltaSink | None = None
) -> Completion:
    """Check a request, send it exactly once, and read the answer; streams if there is somebody to tell.

    Raises:
        ModelError: Any failure, as the subclass that names its kind.
    """
    check_request(request)
    body = encode_body(wire.render(request, stream=on_delta is not None))

    from outlast.models import _http  # only a call that goes out loads the HTTP library

    reporter = Reporter(
        provider=endpoint.provider,
        model=endpoint.model,
        key_env=" or ".join(endpoint.api_key_env),
        private=private_texts(request),
    )
    key = endpoint.key(reporter)
    reporter = replace(reporter, secrets=(key,))
    call = Call(
        url=endpoint.address() + wire.path(on_delta is not None),
        headers=wire.headers(key),
        body=body,
        timeout=endpoint.timeout,
        reporter=reporter,
    )
    if on_delta is None:
        return _read(wire, await _http.post(call), reporter)
    assembler = wire.assembler()

    def feed(event: dict[str, Json]) -> None:
        try:
            deltas = assembler.feed(event)
        except _UNREADABLE as error:
            raise reporter.malformed(f"{type(error).__name__} in a stream event") from None
        for delta in deltas:
            on_delta(delta)

    try:
        response = await _http.stream(call, feed) or assembler.response()
        if response is None:
            raise reporter.truncated()
    except ModelError as error:
        raise _spending(error, wire, assembler.so_far()) from None
    return _read(wire, response, reporter)


_UNREADABLE = (AttributeError, KeyError, IndexError, TypeError, ValueError)


def _read(wire: Wire, response: dict[str, Json], reporter: Reporter) -> Completion:
    whole = mend(response)
    if whole.get("error") or whole.get("status") in ("failed", "cancelled"):
        raise _spending(reporter.event(whole), wire, whole)
    try:
        return wire.parse(whole)
    except _UNREADABLE as error:
        failure = reporter.malformed(f"{type(error).__name__} in the answer")
        raise _spending(failure, wire, whole) from None


def _spending(error: ModelError, wire: Wire, response: dict[str, Json]) -> ModelError:
    """The error with what the call has used up all the same."""
    with contextlib.suppress(*_UNREADABLE):
        usage = wire.usage(mend(response))
        error.usage = usage if usage.total_tokens else None
    return error
