"""Temporal's remote codec protocol over HTTP: its web UI and its command line show what is encrypted, and stored.

``POST /decode`` and ``POST /encode`` take and give ``{"payloads": [...]}``. Whoever may ask this server reads every run
that its keys open: it listens on loopback unless a token is asked for, answers web pages of the UI's origin only, and
logs no content.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from outlast.errors import OutlastError

MAX_BYTES: Final = 50_000_000
"""Of one request; a page of a history is at most a few megabytes."""

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_log = logging.getLogger("outlast.codec_server")


def codec_app(
    converter: DataConverter, *, origins: Sequence[str], hosts: Sequence[str] = _LOOPBACK, token: str | None = None
) -> Starlette:
    """An ASGI application with ``/decode`` and ``/encode``; mount it where you like.

    Args:
        converter: Of the runs: :func:`outlast.settings.data_converter`. What is in its storage is fetched.
        origins: Web pages that may ask, like ``http://localhost:8233``: where Temporal's UI is.
        hosts: Names by which this server may be addressed; another one is a page that was rebound to this address.
        token: Wanted as ``Authorization: Bearer TOKEN``; None for none.

    Raises:
        ValueError: An origin is none, or is ``*``.
    """
    for origin in origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
            raise ValueError(f"{origin!r} is not an origin: give scheme and host, for example http://localhost:8233")

    async def decode(payload: Payload) -> Payload:
        value: RawValue
        [value] = await converter.decode([payload], [RawValue])
        return value.payload

    async def encode(payload: Payload) -> Payload:
        [found] = await converter.encode([RawValue(payload)])
        return found

    def endpoint(work: Callable[[Payload], Awaitable[Payload]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            refusal = _refusal(request, token, origins)
            if refusal is not None:
                return refusal
            try:
                asked = await _payloads(request)
            except ValueError as error:
                return JSONResponse({"error": str(error)}, 400)
            _log.info("%s %d payloads", request.url.path, len(asked))
            found = Payloads(payloads=[await work(payload) for payload in asked])
            return Response(json_format.MessageToJson(found, indent=None), media_type="application/json")

        return answer

    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["POST"],
        allow_headers=["content-type", "x-namespace", "authorization"],
        allow_credentials=True,
    )
    return Starlette(
        routes=[Route(f"/{work.__name__}", endpoint(work), methods=["POST"]) for work in (decode, encode)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)), cors],
    )


def check_exposure(host: str, token: str | None) -> None:
    """Refuse to listen to a network without asking for a token.

    Raises:
        OutlastError: It would.
    """
    if host not in _LOOPBACK and not token:
        raise OutlastError(
            f"listening on {host} would show every run to whoever reaches it; set OUTLAST_CODEC_TOKEN, "
            "or listen on 127.0.0.1 behind a proxy that asks who it is"
        )


def _refusal(request: Request, token: str | None, origins: Sequence[str]) -> Response | None:
    origin = request.headers.get("origin")
    if origin is not None and origin not in origins:
        return JSONResponse({"error": "this origin is not allowed (--origin)"}, 403)
    given = request.headers.get("authorization", "")
    if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        return JSONResponse({"error": "a bearer token is wanted"}, 401, headers={"WWW-Authenticate": "Bearer"})
    return None


async def _payloads(request: Request) -> Sequence[Payload]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes were sent")
    try:
        return json_format.Parse(bytes(body), Payloads()).payloads
    except (json_format.ParseError, UnicodeDecodeError, RecursionError):
        raise ValueError('the body is not {"payloads": [...]}') from None
