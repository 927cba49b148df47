"""What a worker and a client are told by their environment, and how they connect with it.

The connection is Temporal's own: ``TEMPORAL_ADDRESS``, ``TEMPORAL_NAMESPACE``, ``TEMPORAL_API_KEY``, ``TEMPORAL_TLS*``,
``TEMPORAL_PROFILE`` and the config file. What is ours starts with ``OUTLAST_``; see :data:`VARIABLES`.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Plugin
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError, RPCStatusCode

from outlast.dev_folder import find_dev
from outlast.encryption import EncodedFailures, PayloadEncryption, ReadableFailures
from outlast.errors import OutlastError
from outlast.keyring import KEY_FILE, KEYS, Keyring, load_keyring
from outlast.storage import OwnedStorage, TotalDataConverter, check_storage_url, open_storage

DEFAULT_ADDRESS: Final = "localhost:7233"
DEFAULT_NAMESPACE: Final = "default"
DEFAULT_TASK_QUEUE: Final = "outlast"
STORAGE_THRESHOLD_BYTES: Final = 4096
"""Payloads from this size on are kept in storage, where there is one."""

_CONNECT_SECONDS: Final = 5.0
_RETRIED: Final = re.compile(r'message: "([^"]*)"')


class ServerUnreachable(OutlastError, ConnectionError):
    """No Temporal server answered; the message names the address, the namespace and the next step."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a process is configured with. Make one with :meth:`load`.

    Attributes:
        connection: Temporal's own client profile: address, namespace, API key, TLS.
        task_queue: Where a client starts runs and a worker takes them.
        storage: URL of the storage for large payloads (``dir:///path``); None keeps them in the history. All clients
            and workers of a namespace need the same.
        encryption: The keys that payloads are encrypted with; None leaves them plain. From ``OUTLAST_ENCRYPTION_KEYS``
            or the file that ``OUTLAST_ENCRYPTION_KEY_FILE`` names; the same for all clients and workers.
        encode_failures: Put errors' messages and stack traces where codecs and storage reach them; with ``encryption``
            they always are.
        max_concurrent_activities: Model and tool calls at a time in a worker.
        max_concurrent_workflow_tasks: Workflow tasks at a time in a worker.
        max_cached_runs: Runs that a worker keeps in memory between two tasks.
        graceful_shutdown_seconds: How long a stopping worker lets its calls finish.
        health_port: Port on which a worker answers health checks; None for none, 0 for a free one.
        deployment: Name of the Temporal worker deployment; with ``build_id``, runs stay on the code they started with.
        build_id: Of this worker's code.
    """

    connection: ClientConfigProfile = field(default_factory=ClientConfigProfile, repr=False)
    task_queue: str = DEFAULT_TASK_QUEUE
    storage: str | None = None
    encryption: Keyring | None = None
    encode_failures: bool = False
    max_concurrent_activities: int = 100
    max_concurrent_workflow_tasks: int = 100
    max_cached_runs: int = 1000
    graceful_shutdown_seconds: float = 30.0
    health_port: int | None = None
    deployment: str | None = None
    build_id: str | None = None

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return self.connection.address or DEFAULT_ADDRESS

    @property
    def namespace(self) -> str:
        """The namespace of all runs."""
        return self.connection.namespace or DEFAULT_NAMESPACE

    @classmethod
    def load(
        cls,
        *,
        address: str | None = None,
        namespace: str | None = None,
        task_queue: str | None = None,
        storage: str | None = None,
        profile: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Settings from the environment and Temporal's config file; arguments that are given win.

        Where neither says another address, an ``outlast dev`` that runs in this folder is found by itself.

        Args:
            address, namespace, task_queue, storage, profile: Over what the environment says.
            environ: Instead of this process's environment.

        Raises:
            ValueError: A variable's value is wrong; the message names it, what was given and what is allowed.
        """
        env = dict(os.environ if environ is None else environ)
        given = {"OUTLAST_TASK_QUEUE": task_queue, "OUTLAST_STORAGE": storage}
        env |= {name: value for name, value in given.items() if value is not None}
        ours: dict[str, Any] = {
            name: variable.parse(key, env[key]) for key, (name, variable) in VARIABLES.items() if env.get(key)
        }
        found = _load_profile(profile, env)
        dev = find_dev() if environ is None else None
        if dev is not None and (address or found.address) in (None, dev.address):
            found = ClientConfigProfile(address=dev.address, namespace=found.namespace or dev.namespace)
            ours = {"task_queue": dev.task_queue, "storage": dev.storage, **ours}
            if dev.key_file is not None and not env.get(KEYS):
                env.setdefault(KEY_FILE, dev.key_file)
        ours["encryption"] = load_keyring(env)
        connection = dataclasses.replace(
            found, address=address or found.address, namespace=namespace or found.namespace
        )
        _check_address(connection.address, "address" if address else "TEMPORAL_ADDRESS")
        settings = cls(connection=connection, **ours)
        if bool(settings.deployment) != bool(settings.build_id):
            raise ValueError("OUTLAST_DEPLOYMENT and OUTLAST_BUILD_ID go together: set both, or neither")
        return settings


@dataclass(frozen=True)
class Variable:
    """How one environment variable is read.

    Attributes:
        allowed: In words, for the message about a wrong value.
        read: Makes the value; raises ValueError for what is not allowed.
    """

    allowed: str
    read: Callable[[str], object]

    def parse(self, name: str, text: str) -> object:
        """The value.

        Raises:
            ValueError: Not allowed.
        """
        try:
            return self.read(text.strip())
        except ValueError:
            raise ValueError(f"{name}={text!r} is not allowed: give {self.allowed}") from None


def _number(low: int, high: int) -> Variable:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Variable(f"a whole number from {low} to {high}", read)


def _seconds(high: int) -> Variable:
    def read(text: str) -> float:
        value = float(text)
        if not (math.isfinite(value) and 0 <= value <= high):
            raise ValueError
        return value

    return Variable(f"a number of seconds from 0 to {high}", read)


def _name() -> Variable:
    def read(text: str) -> str:
        if not text or len(text) > 200 or not text.isprintable():
            raise ValueError
        return text

    return Variable("a name of 1 to 200 printable characters", read)


def _switch() -> Variable:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}

    def read(text: str) -> bool:
        if text.lower() not in words:
            raise ValueError
        return words[text.lower()]

    return Variable("true or false", read)


def _storage_url(text: str) -> str:
    check_storage_url(text)
    return text


VARIABLES: Final[Mapping[str, tuple[str, Variable]]] = {
    "OUTLAST_TASK_QUEUE": ("task_queue", _name()),
    "OUTLAST_STORAGE": ("storage", Variable("dir:///absolute/path", _storage_url)),
    "OUTLAST_ENCODE_FAILURES": ("encode_failures", _switch()),
    "OUTLAST_MAX_CONCURRENT_ACTIVITIES": ("max_concurrent_activities", _number(1, 10_000)),
    # Temporal needs two slots when runs are cached.
    "OUTLAST_MAX_CONCURRENT_WORKFLOW_TASKS": ("max_concurrent_workflow_tasks", _number(2, 10_000)),
    "OUTLAST_MAX_CACHED_RUNS": ("max_cached_runs", _number(0, 1_000_000)),
    "OUTLAST_GRACEFUL_SHUTDOWN_SECONDS": ("graceful_shutdown_seconds", _seconds(86_400)),
    "OUTLAST_HEALTH_PORT": ("health_port", _number(0, 65_535)),
    "OUTLAST_DEPLOYMENT": ("deployment", _name()),
    "OUTLAST_BUILD_ID": ("build_id", _name()),
}
"""Environment variable, the setting it sets, and how it is read. An empty value counts as not set."""


async def connect(
    settings: Settings, *, plugins: Sequence[Plugin] = (), data_converter: DataConverter | None = None
) -> Client:
    """A Temporal client, connected; answers within seconds, one way or the other.

    Args:
        settings: Where to.
        plugins: For the client.
        data_converter: Instead of the one that :func:`data_converter` makes of the settings.

    Raises:
        ServerUnreachable: Nobody answers there, or not as a Temporal server does.
        OutlastError: The server does not know the namespace, or the storage or a TLS file cannot be used.
    """
    converter = data_converter if data_converter is not None else _converter_of(settings)
    atexit.unregister(let_core_finish)
    atexit.register(let_core_finish)
    try:
        options = settings.connection.to_client_connect_config()
    except OSError as error:
        raise OutlastError(f"the TLS files of TEMPORAL_TLS_* or the config file cannot be read: {error}") from None
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            client = await Client.connect(
                settings.address,
                namespace=settings.namespace,
                api_key=options.get("api_key"),
                tls=options.get("tls"),
                rpc_metadata=options.get("rpc_metadata", {}),
                data_converter=converter,
                plugins=plugins,
            )
            await _check_namespace(client)
    except (RuntimeError, RPCError, OSError, TimeoutError) as error:
        raise ServerUnreachable(
            f"no Temporal server at {settings.address} (namespace {settings.namespace!r}): {_reason(error)}. "
            "Start one with `outlast dev`, or set TEMPORAL_ADDRESS to where yours is."
        ) from None
    return client


def let_core_finish() -> None:
    """Give threads of Temporal's core, at the end of the program, the moment they need to leave Python.

    One that still hands over the last answer while the interpreter is torn down ends the process with a segmentation
    fault; without this, 9 of 80 scripts that list runs and end did so (CPython 3.11, temporalio 1.35).
    """
    time.sleep(0.05)


async def _check_namespace(client: Client) -> None:
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise OutlastError(
                f"the server at {client.service_client.config.target_host} has no namespace {client.namespace!r}; "
                "set TEMPORAL_NAMESPACE to one it has, or create it there"
            ) from None
        if error.status != RPCStatusCode.PERMISSION_DENIED:  # a key may be good for runs and not for this
            raise


def _reason(error: BaseException) -> str:
    """The one part of a transport error's text that a person needs."""
    if isinstance(error, TimeoutError):
        return f"no answer within {_CONNECT_SECONDS:g} s"
    text = " ".join(str(error).split())
    if "InvalidContentType" in text:
        return "what answers there does not speak TLS, which TEMPORAL_TLS or an API key asks for"
    found = _RETRIED.findall(text) or re.findall(r'"([^"]{4,})"', text)
    return (found[-1] if found else text)[:200].rstrip(".")


def data_converter(settings: Settings, *, codec: PayloadCodec | None = None) -> DataConverter:
    """The converter that all clients and workers of these settings share.

    Args:
        settings: ``storage``, ``encryption`` and ``encode_failures`` matter.
        codec: Instead of our own encryption; applied before payloads are stored.

    Raises:
        OutlastError: The storage cannot be used, or ``cryptography`` is not installed.
        ValueError: Both a codec and ``settings.encryption``.
    """
    if codec is not None and settings.encryption is not None:
        raise ValueError(f"a codec was given and {KEYS} or {KEY_FILE} is set; payloads can have one of the two")
    storage = None
    if settings.storage is not None:
        drivers = [open_storage(settings.storage)]
        storage = OwnedStorage(drivers=drivers, payload_size_threshold=STORAGE_THRESHOLD_BYTES)
    encoded = settings.encode_failures or settings.encryption is not None
    # Without keys it encrypts nothing, and what others have encrypted is named instead of failing.
    ours = PayloadEncryption(settings.encryption or Keyring())
    return TotalDataConverter(
        payload_codec=codec if codec is not None else ours,
        failure_converter_class=EncodedFailures if encoded else ReadableFailures,
        external_storage=storage,
    )


_converter_of = data_converter  # `connect` has an argument of that name


def _load_profile(profile: str | None, env: Mapping[str, str]) -> ClientConfigProfile:
    try:
        return ClientConfigProfile.load(profile=profile, override_env_vars=env)
    except Exception as error:  # the bridge raises several kinds, none of them documented
        file = env.get("TEMPORAL_CONFIG_FILE", "Temporal's config file")
        problem = " ".join(str(error).split())
        raise ValueError(f"Temporal's connection settings (TEMPORAL_* variables, {file}): {problem}") from None


def _check_address(address: str | None, name: str) -> None:
    if address is not None and not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):\d{1,5}", address):
        raise ValueError(f"{name}={address!r} is not allowed: give host:port, for example localhost:7233")
