"""Folders of models, by hub name too: safetensors, config and tokenizer, and no code.

A folder's fingerprint is the digest of its files, each hashed once until it changes.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.data.files import similar_path
from jaxcontam.data.hub_splits import check_revision
from jaxcontam.data.model_files import check_model_folder
from jaxcontam.errors import InputError, first_line, install_hint
from jaxcontam.terminal_text import shell_line

_WANTED = ("*.json", "*.safetensors", "tokenizer.model", "*.txt")


def model_directory(model: str, *, pickles: bool = False) -> Path:
    """The folder of a model; a name on the hub is downloaded, weights and all.

    `pickles` downloads pytorch_model*.bin, too.
    """
    directory = Path(model)
    if directory.is_dir():
        check_model_folder(directory)
        return _gguf_in(directory) or directory
    if directory.suffix == ".gguf" and directory.is_file():
        return directory
    if directory.suffix == ".gguf" and not directory.exists():
        hint = similar_path(directory, Path.is_file)
        raise InputError(f"{model}: no such file", hint=hint)
    if model.startswith(("api:", "lm_eval:", "vllm:")):
        raise InputError(
            f"{model}: the weights are required here, but such a model gives only "
            "log-probabilities and texts",
            hint="name a model directory",
        )
    if directory.exists():
        raise InputError(f"{model}: not a model directory", hint="name its folder")
    if model.startswith(("http://", "https://")):
        hint = f"for a model behind it: api:{model}{'' if '#' in model else '#NAME'}"
        raise InputError(f"{model}: a URL is not a model directory", hint=hint)
    is_hub_name = model.count("/") == 1 and not directory.parent.exists()
    if not is_hub_name or model.startswith((".", "/")):
        hint = similar_path(directory, Path.is_dir)
        if found := _other_case(directory):
            hint = f"did you mean {found!r}?"
        if not hint.endswith("?"):
            wanted = "give a folder with config.json, or a hub name such as org/name"
            hint = f"{hint}; {wanted}" if hint else wanted
        raise InputError(f"{model}: no such model directory", hint=hint)
    try:
        found = download_model(model, pickles=pickles)
    except InputError as e:
        if (here := _other_case(directory)) == "":
            raise
        raise InputError(str(e), hint=f"did you mean {here!r}? {e.hint}") from e
    check_model_folder(found)
    return found


def _other_case(directory: Path) -> str:
    """A folder of this name here in other letters, capital or small; "" for none."""
    folder = Path(directory.anchor or ".")
    for part in directory.relative_to(directory.anchor).parts:
        try:
            names = [path.name for path in folder.iterdir() if path.is_dir()]
        except OSError:
            return ""
        same = [name for name in names if name.casefold() == part.casefold()]
        if not same:
            return ""
        folder = folder / (part if part in same else same[0])
    return str(folder)


def _gguf_in(directory: Path) -> Path | None:
    """The GGUF file of a folder that holds no other weights."""
    found = sorted(directory.glob("*.gguf"))
    if not found or (directory / "config.json").exists():
        return None
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(
            f"{directory}: holds {len(found)} GGUF files ({names})",
            hint="name one of them",
        )
    return found[0]


def convert_hint(directory: Path) -> str:
    """The line that makes safetensors of the pickles of a folder or a hub name."""
    model, name = str(directory), directory.name
    if directory.parent.name == "snapshots":  # ORG/NAME, of the hub's cache
        org, name = directory.parts[-3].removeprefix("models--").split("--", 1)
        model = f"{org}/{name}@{directory.name}"
    out = f"{name}-safetensors"
    line = shell_line(["jaxcontam", "convert", model, out])
    again = shell_line([out])
    return (
        f"convert pickles to safetensors, without running code: {line}; then name "
        f"{again}"
    )


def download_model(name: str, *, pickles: bool = False) -> Path:
    """The folder of a model of the hub, downloaded unless it is here already.

    `name` is ORG/NAME, or ORG/NAME@REVISION: a commit, a tag or a branch.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    word = name
    name, _, revision = word.partition("@")
    if revision:
        check_revision(revision, word)
    try:
        found = snapshot_download(
            name,
            revision=revision or None,
            allow_patterns=[*_WANTED, "pytorch_model*.bin"] if pickles else [*_WANTED],
            # Second copies of the weights in other layouts.
            ignore_patterns=["*/*", "consolidated*"],
        )
    except RevisionNotFoundError as e:
        raise InputError(f"{name}: the hub has no revision {revision!r} of it") from e
    except GatedRepoError as e:
        raise InputError(
            f"{name}: the hub gives it only to those who accepted its terms",
            hint=f"accept them at https://huggingface.co/{name}, run `hf auth login`, "
            "and try again",
        ) from e
    except RepositoryNotFoundError as e:
        raise InputError(
            f"{name}: no such folder, and on the hub no such model or a private one",
            hint="check the name; private models need `hf auth login`",
        ) from e
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as e:
        included = " ".join(f"--include '{pattern}'" for pattern in _WANTED)
        raise InputError(
            f"{name}: no such folder, and the hub cannot be reached",
            hint=f"on a machine with network access, `hf download {name} --local-dir "
            f"DIR {included}`; then name DIR",
        ) from e
    except (OSError, ValueError) as e:
        raise InputError(
            f"{name}: no such folder, and not on the hub ({first_line(e)})"
        ) from e
    return Path(found)


def fingerprint_files(files: Sequence[Path], tokenizer: str) -> str:
    """`sha256:...` over the digests of the files and the tokenizer's text.

    A file's digest is kept in the user's cache folder under its `file_state`.
    """
    digest = hashlib.sha256()
    known = _read_cache()
    fresh: dict[str, str] = {}
    for path in files:
        key = file_state(path)
        if (found := known.get(key)) is None:
            with path.open("rb") as handle:
                found = hashlib.file_digest(handle, "sha256").hexdigest()
            stat = path.stat()
            age = time.time() - max(stat.st_mtime, stat.st_ctime)
            # A younger file could change again within the same tick of its clock.
            if file_state(path) == key and age > 2.0:
                fresh[key] = found
        digest.update(bytes.fromhex(found))
    # A cache that cannot be written is none.
    with contextlib.suppress(OSError, RuntimeError):
        if fresh:
            path = _cache_path()
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
            text = json.dumps(_read_cache() | fresh, indent=1)
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)
    digest.update(tokenizer.encode())
    return f"sha256:{digest.hexdigest()}"


def file_state(path: Path) -> str:
    """Path, size, modification and change times, and inode of a file.

    The modification time alone can be set, and archives set it alike for all their
    files; the change time cannot.
    """
    stat = path.stat()
    times = f"{stat.st_mtime_ns}:{stat.st_ctime_ns}"
    return f"{path.resolve()}:{stat.st_size}:{times}:{stat.st_ino}"


def _cache_path() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jaxcontam" / "digests.json"


def _read_cache() -> dict[str, str]:
    try:
        found = json.loads(_cache_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)
    }


def need_torch(what: str) -> None:
    """Refuse in one line where torch, which `what` needs, is not installed.

    It is no dependency: encoders run in it, our decoders never do.
    """
    try:
        import torch  # noqa: F401
    except ImportError as e:
        raise InputError(
            f"{what} needs torch, which is not installed",
            hint=install_hint("torch"),
        ) from e
