"""Settings come from the environment; a wrong one is named, with what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.encryption import EncodedFailures, ReadableFailures
from outlast.settings import (
    STORAGE_THRESHOLD_BYTES,
    VARIABLES,
    ServerUnreachable,
    Settings,
    connect,
    data_converter,
)

NO_FILE = {"TEMPORAL_CONFIG_FILE": "/nonexistent/temporal.toml"}


def test_an_empty_environment_means_a_local_server_and_the_default_task_queue() -> None:
    settings = Settings.load(environ=NO_FILE)
    assert (settings.address, settings.namespace, settings.task_queue) == ("localhost:7233", "default", "outlast")
    assert settings.storage is None
    assert settings.health_port is None


def test_every_variable_sets_its_own_setting() -> None:
    values = {
        "OUTLAST_TASK_QUEUE": "agents",
        "OUTLAST_STORAGE": "dir:///var/lib/outlast",
        "OUTLAST_ENCODE_FAILURES": "yes",
        "OUTLAST_MAX_CONCURRENT_ACTIVITIES": "7",
        "OUTLAST_MAX_CONCURRENT_WORKFLOW_TASKS": "8",
        "OUTLAST_MAX_CACHED_RUNS": "0",
        "OUTLAST_GRACEFUL_SHUTDOWN_SECONDS": "2.5",
        "OUTLAST_HEALTH_PORT": "8080",
        "OUTLAST_DEPLOYMENT": "editors",
        "OUTLAST_BUILD_ID": "7d95de1",
    }
    assert set(values) == set(VARIABLES)
    settings = Settings.load(environ=NO_FILE | values)
    found = [getattr(settings, name) for name, _ in VARIABLES.values()]
    assert found == ["agents", "dir:///var/lib/outlast", True, 7, 8, 0, 2.5, 8080, "editors", "7d95de1"]


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("OUTLAST_TASK_QUEUE", "a\nb", "1 to 200 printable characters"),
        ("OUTLAST_STORAGE", "s3://bucket", "dir:///absolute/path"),
        ("OUTLAST_STORAGE", "dir://relative", "dir:///absolute/path"),
        ("OUTLAST_ENCODE_FAILURES", "maybe", "true or false"),
        ("OUTLAST_MAX_CONCURRENT_ACTIVITIES", "0", "from 1 to 10000"),
        ("OUTLAST_MAX_CONCURRENT_WORKFLOW_TASKS", "1", "from 2 to 10000"),
        ("OUTLAST_MAX_CACHED_RUNS", "lots", "a whole number"),
        ("OUTLAST_MAX_CACHED_RUNS", "1e3", "a whole number"),
        ("OUTLAST_GRACEFUL_SHUTDOWN_SECONDS", "nan", "a number of seconds"),
        ("OUTLAST_GRACEFUL_SHUTDOWN_SECONDS", "-1", "a number of seconds"),
        ("OUTLAST_HEALTH_PORT", "65536", "from 0 to 65535"),
        ("TEMPORAL_ADDRESS", "http://localhost:7233", "host:port"),
        ("TEMPORAL_ADDRESS", "localhost", "host:port"),
    ],
)
def test_a_wrong_value_is_refused_by_name_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}=") as refused:
        Settings.load(environ=NO_FILE | {name: value})
    assert repr(value) in str(refused.value)
    assert allowed in str(refused.value)


def test_an_empty_value_counts_as_not_set() -> None:
    assert Settings.load(environ=NO_FILE | dict.fromkeys(VARIABLES, "")) == Settings.load(environ=NO_FILE)


def test_a_deployment_without_a_build_id_is_refused() -> None:
    with pytest.raises(ValueError, match="OUTLAST_DEPLOYMENT and OUTLAST_BUILD_ID go together"):
        Settings.load(environ=NO_FILE | {"OUTLAST_DEPLOYMENT": "editors"})


def test_arguments_win_over_the_environment_which_wins_over_the_config_file(tmp_path: Path) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text(
        '[profile.default]\naddress = "file:1"\nnamespace = "from-file"\n[profile.other]\naddress = "other:2"\n'
    )
    env = {"TEMPORAL_CONFIG_FILE": str(file), "OUTLAST_TASK_QUEUE": "env"}
    assert Settings.load(environ=env).address == "file:1"
    assert Settings.load(environ=env, profile="other").address == "other:2"
    assert Settings.load(environ=env | {"TEMPORAL_PROFILE": "other"}).address == "other:2"
    settings = Settings.load(environ=env | {"TEMPORAL_ADDRESS": "env:3"}, namespace="argument", task_queue="argument")
    assert (settings.address, settings.namespace, settings.task_queue) == ("env:3", "argument", "argument")


def test_a_broken_config_file_and_an_unknown_profile_are_named(tmp_path: Path) -> None:
    file = tmp_path / "temporal.toml"
    file.write_text("[profile.x\n")
    with pytest.raises(ValueError, match="TOML parse error"):
        Settings.load(environ={"TEMPORAL_CONFIG_FILE": str(file)})
    with pytest.raises(ValueError, match="Profile 'nope' not found"):
        Settings.load(environ=NO_FILE | {"TEMPORAL_PROFILE": "nope"})


def test_an_api_key_is_never_shown() -> None:
    settings = Settings.load(environ=NO_FILE | {"TEMPORAL_API_KEY": "hush-hush"})
    assert settings.connection.api_key == "hush-hush"
    assert "hush-hush" not in repr(settings)


async def test_an_unreachable_server_is_one_sentence_with_the_address_the_namespace_and_the_next_step() -> None:
    settings = Settings.load(address="127.0.0.1:1", namespace="production", environ=NO_FILE)
    with pytest.raises(ServerUnreachable) as refused:
        await connect(settings)
    assert str(refused.value) == (
        "no Temporal server at 127.0.0.1:1 (namespace 'production'): Connection refused. "
        "Start one with `outlast dev`, or set TEMPORAL_ADDRESS to where yours is."
    )
    assert isinstance(refused.value, ConnectionError)
    assert refused.value.__suppress_context__


async def test_a_missing_tls_file_is_named() -> None:
    files = {
        "TEMPORAL_TLS_CLIENT_CERT_PATH": "/nonexistent/c.pem",
        "TEMPORAL_TLS_CLIENT_KEY_PATH": "/nonexistent/k.pem",
    }
    with pytest.raises(Exception, match=r"/nonexistent/c\.pem"):
        await connect(Settings.load(environ=NO_FILE | files))


def test_the_data_converter_stores_from_4_kib_on_only_when_storage_is_configured(tmp_path: Path) -> None:
    assert data_converter(Settings()).external_storage is None
    storage = data_converter(Settings(storage=f"dir://{tmp_path}")).external_storage
    assert storage is not None
    assert storage.payload_size_threshold == STORAGE_THRESHOLD_BYTES == 4096


def test_encoded_failures_are_an_option() -> None:
    assert data_converter(Settings()).failure_converter_class is ReadableFailures
    encoded = data_converter(Settings(encode_failures=True)).failure_converter_class
    assert encoded is EncodedFailures
