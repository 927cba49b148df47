"""``key`` and ``codec-server``: keys for encryption, and a window for those who may look through it."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outlast.cli.command import DONE, BadInput, Server, register

if TYPE_CHECKING:
    from outlast.keyring import Keyring


def add(app: typer.Typer) -> None:
    """Add this module's commands."""
    register(app, key)
    register(app, codec_server, name="codec-server")


def key(
    file: Annotated[
        Path | None, typer.Option(help="Add it to this key file, last: it decrypts only.", show_default=False)
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The key's name; seen by everybody.", show_default=False)
    ] = None,
    use: Annotated[
        str | None, typer.Option(help="Make no key: put this one of the file first, to encrypt.", show_default=False)
    ] = None,
) -> int:
    """Make a key that payloads are encrypted with.

    Prints it, for OUTLAST_ENCRYPTION_KEYS; or keeps it in a file, for OUTLAST_ENCRYPTION_KEY_FILE.
    """
    from outlast.keyring import Keyring, new_key

    try:
        if use is not None:
            return _use(use, file)
        made = new_key(id or _new_id())
        if file is None:
            sys.stdout.write(f"{made}\n")
            return DONE
        before = _read(file) if file.exists() else Keyring()
        ring = Keyring.from_text(",".join(filter(None, (before.to_text(), made))), str(file))
        _write(file, ring)
    except ValueError as error:
        raise BadInput(str(error)) from None
    added = ring.ids[-1]
    sys.stdout.write(f"{file}: {', '.join(ring.ids)}; {ring.ids[0]} encrypts\n")
    if len(ring.ids) > 1:
        sys.stdout.write(f"once every worker and client has the new file: outlast key --file {file} --use {added}\n")
    return DONE


def _use(id: str, file: Path | None) -> int:
    from outlast.keyring import Keyring

    if file is None:
        raise BadInput("--use needs --file: which file's key is it?")
    before = _read(file)
    if id not in before.ids:
        raise BadInput(f"{file} has no key {id!r}; it has {', '.join(before.ids)}")
    ring = Keyring(tuple(sorted(before.keys, key=lambda item: item[0] != id)))
    _write(file, ring)
    sys.stdout.write(f"{file}: {', '.join(ring.ids)}; {id} encrypts\n")
    return DONE


def _read(file: Path) -> Keyring:
    from outlast.keyring import read_key_file

    return read_key_file(file)


def _write(file: Path, ring: Keyring) -> None:
    from outlast.keyring import write_key_file

    try:
        write_key_file(file, ring)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror or error}") from None


def _new_id() -> str:
    """The day and four digits: whoever rotates sees which is older."""
    import secrets
    from datetime import UTC, datetime

    return f"{datetime.now(UTC):%Y-%m-%d}-{secrets.token_hex(2)}"


async def codec_server(
    server: Server,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for a free one.")] = 8081,
    host: Annotated[str, typer.Option(help="Where it listens; another than loopback needs a token.")] = "127.0.0.1",
    origin: Annotated[list[str] | None, typer.Option(help="Where Temporal's web UI is.", show_default=False)] = None,
    token: Annotated[
        str | None, typer.Option(envvar="OUTLAST_CODEC_TOKEN", help="Wanted as a bearer token.", show_default=False)
    ] = None,
) -> int:
    """Decrypt for Temporal's web UI and command line.

    Give its URL to the UI (Codec Server) or to `temporal ... --codec-endpoint`.
    """
    try:
        import uvicorn

        from outlast.codec_server import check_exposure, codec_app
    except ImportError as error:
        raise BadInput(f"this needs {error.name}; install it with: pip install 'outlast[web,encryption]'") from None
    from outlast.dev_folder import find_dev
    from outlast.settings import data_converter

    settings = server.settings()
    if settings.encryption is None:
        raise BadInput("there are no keys: set OUTLAST_ENCRYPTION_KEYS or OUTLAST_ENCRYPTION_KEY_FILE")
    check_exposure(host, token)
    dev = find_dev()
    origins = origin or _both_names(dev.ui if dev is not None and dev.ui is not None else "http://127.0.0.1:8233")
    hosts = sorted({host, "localhost", "127.0.0.1"}) if host != "0.0.0.0" else ["*"]
    try:
        app = codec_app(data_converter(settings), origins=origins, hosts=hosts, token=token)
    except ValueError as error:
        raise BadInput(f"--origin: {error}") from None
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        raise BadInput(f"cannot listen on {host}:{port}: {error.strerror or error}; give another --port") from None
    sys.stdout.write(f"keys {', '.join(settings.encryption.ids)}; for pages of {', '.join(origins)}\n")
    sys.stdout.write(f"codec server at http://{host}:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    await uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).serve(sockets=[listening])
    return DONE


def _both_names(url: str) -> list[str]:
    """A page of this machine, by either name that it is opened with."""
    return [url, url.replace("127.0.0.1", "localhost")]
