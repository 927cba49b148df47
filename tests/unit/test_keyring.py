"""Keys are read from one place, checked there, and never shown."""

from __future__ import annotations

import base64
import hashlib
import stat
from pathlib import Path

import pytest

from outlast.keyring import KEY_FILE, KEYS, Keyring, disagreement, load_keyring, new_key, read_key_file, write_key_file
from outlast.settings import Settings

NO_FILE = {"TEMPORAL_CONFIG_FILE": "/nonexistent/temporal.toml"}
A, B, C = (f"{id}:{base64.b64encode(hashlib.sha256(id.encode()).digest()).decode()}" for id in "abc")


def ring(*keys: str) -> Keyring:
    return Keyring.from_text(",".join(keys), KEYS) if keys else Keyring()


def test_the_first_key_comes_first_and_all_are_there() -> None:
    assert ring(B, A).ids == ("b", "a")
    assert ring(B, A).to_text() == f"{B},{A}"


def test_a_file_has_one_key_per_line_and_remarks(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# the new one\n{B}\n\n{A}  # until May\n")
    assert read_key_file(file).ids == ("b", "a")
    assert Settings.load(environ=NO_FILE | {KEY_FILE: str(file)}).encryption == ring(B, A)


def test_a_written_file_is_read_back_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    write_key_file(tmp_path / "keys", ring(B, A))
    assert read_key_file(tmp_path / "keys") == ring(B, A)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["keys"]


def test_without_a_key_nothing_is_encrypted() -> None:
    assert load_keyring({}) is None
    assert load_keyring({KEYS: "  "}) is None
    assert Settings.load(environ=NO_FILE).encryption is None


def short(id: str, size: int) -> str:
    return f"{id}:{base64.b64encode(bytes(size)).decode()}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (",", f"{KEYS} holds no key"),
        ("# nothing", f"{KEYS} holds no key"),
        ("justtext", f"{KEYS}, key 1 is not written id:base64"),
        (f"{A},:{A[2:]}", f"{KEYS}, key 2 has an id that is not allowed"),
        (f"my key{A[1:]}", f"{KEYS}, key 1 has an id that is not allowed"),
        (f"{A},b:not*base64", rf"{KEYS}, key 2 \('b'\) is not base64"),
        (f"{A[:-3]}", rf"{KEYS}, key 1 \('a'\) is not base64"),
        (short("a", 16), r"key 1 \('a'\) has 16 bytes; a key has exactly 32"),
        (short("a", 0), r"key 1 \('a'\) has 0 bytes"),
        (f"{A},{B},a{C[1:]}", f"{KEYS}, key 3: there is an earlier key 'a'"),
    ],
)
def test_a_wrong_key_is_named_by_its_place_and_never_shown(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        Settings.load(environ=NO_FILE | {KEYS: text})
    assert not any(secret in str(caught.value) for secret in (A[2:], B[2:], C[2:], "not*base64"))


def test_a_wrong_key_of_a_file_is_named_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# remark\n{A}\nb:AAAA\n")
    with pytest.raises(ValueError, match=rf"{KEY_FILE} .*keys, key 2 \(line 3\) \('b'\) has 3 bytes"):
        load_keyring({KEY_FILE: str(file)})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{KEY_FILE}: the file .*missing cannot be read \(No such file"):
        load_keyring({KEY_FILE: str(tmp_path / "missing")})
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="it is not text"):
        load_keyring({KEY_FILE: str(tmp_path / "binary")})


def test_two_places_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="are both set"):
        load_keyring({KEYS: A, KEY_FILE: "keys"})


def test_no_representation_shows_a_key() -> None:
    settings = Settings.load(environ=NO_FILE | {KEYS: f"{B},{A}"})
    shown = repr(settings) + str(settings.encryption) + ring(B, A).fingerprint
    assert "Keyring(b, a)" in shown
    assert A[2:30] not in shown
    assert base64.b64decode(A[2:]).hex()[:16] not in shown


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        (ring(), ring(), None),
        (ring(A), ring(A), None),
        (ring(A), ring(A, B), None),
        (ring(A, B), ring(B, A), None),
        (ring(B, A), ring(B), None),
        (ring(A), ring(B, A), "this one lacks the key 'b'"),
        (ring(B, A), ring(A), "the other lacks the key 'b'"),
        (ring(A), ring(), "one encrypts and the other does not"),
        (ring(A), ring(f"a{B[1:]}"), "the key 'a' is another key there"),
    ],
)
def test_fingerprints_tell_who_cannot_work_together(ours: Keyring, theirs: Keyring, said: str | None) -> None:
    found = disagreement(ours.fingerprint, theirs.fingerprint)
    assert found is None if said is None else found is not None and said in found


def test_an_id_for_a_new_key_is_checked() -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        new_key("two words")
