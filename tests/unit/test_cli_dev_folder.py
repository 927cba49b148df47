"""A running ``outlast dev`` is found by clients in its folder, and by nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.dev_folder import DevNote, claim, find_dev, storage_url, write_note
from outlast.errors import OutlastError
from outlast.settings import DEFAULT_ADDRESS, Settings


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, and an environment that says nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY", "OUTLAST_TASK_QUEUE", "OUTLAST_STORAGE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def note(folder: Path) -> DevNote:
    return DevNote(
        address="127.0.0.1:7333", namespace="default", task_queue="mine", storage=storage_url(folder), ui=None
    )


def test_settings_find_it_with_its_task_queue_and_storage_while_it_runs(here: Path) -> None:
    folder = here / ".outlast"
    with claim(folder) as file:
        assert find_dev(folder) is None  # not ready yet
        write_note(file, note(folder))
        settings = Settings.load()
        assert (settings.address, settings.task_queue) == ("127.0.0.1:7333", "mine")
        assert settings.storage == f"dir://{folder}/storage?fsync=off"
        assert Settings.load(task_queue="other").task_queue == "other"
    assert Settings.load().address == DEFAULT_ADDRESS
    assert Settings.load().storage is None


def test_another_address_in_the_environment_or_an_argument_wins(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = here / ".outlast"
    with claim(folder) as file:
        write_note(file, note(folder))
        assert Settings.load(address="elsewhere:7233").storage is None
        assert Settings.load(address="127.0.0.1:7333").storage is not None
        monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere:7233")
        assert Settings.load().address == "elsewhere:7233"


def test_what_a_killed_one_left_behind_is_ignored(here: Path) -> None:
    folder = here / ".outlast"
    folder.mkdir()
    write_note(folder / "dev.json", note(folder))
    assert find_dev(folder) is None
    assert Settings.load().address == DEFAULT_ADDRESS


def test_a_folder_has_one_owner_who_is_named_to_the_second(here: Path) -> None:
    folder = here / ".outlast"
    with claim(folder) as file:
        write_note(file, note(folder))
        with pytest.raises(OutlastError, match=r"127\.0\.0\.1:7333.*--state"), claim(folder):
            pass
    with claim(folder):
        pass


def test_a_folder_that_cannot_be_made_is_named(here: Path) -> None:
    (here / "file").write_text("")
    with pytest.raises(OutlastError, match="file/state cannot be used"), claim(here / "file" / "state"):
        pass
