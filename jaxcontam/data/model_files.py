"""Files of a model's folder, looked at before a library opens them.

Libraries open what a name says, follow a link to a device, and take a tokenizer of any
size: minutes, and kilobytes of memory a token.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxcontam.data.files import MOST_TEXT, parse_json, read_json_object, read_limited
from jaxcontam.errors import InputError

MOST_TOKENS, MOST_ADDED = 1 << 20, 1 << 17
"""Tokens of a tokenizer, and those of them that are added to its vocabulary. XLM-V has
901,629; models of speech add 65,536."""
GGUF = ".gguf"
"""Ending of a model that is one file."""
ADAPTER = "adapter_config.json"
"""File of a folder that holds changes of a model."""
TEMPLATES = "additional_chat_templates"
"""Folder within a model's that transformers reads."""


def is_score_file(word: str) -> bool:
    """Tell a file of scores from other models."""
    return word.endswith(".jsonl") and Path(word).is_file()


# What transformers may open, whichever class a tokenizer has.
_DESCRIBES = re.compile(
    r".*config.*\.json|.*\.index\.json|tokenizer.*|.*vocab.*|merges.*|tekken\.json|"
    r"special_tokens_map\.json|added_tokens\.json|chat_template.*|dict\.txt|"
    r"(emoji|byte_maps|normalizer|word_.*)\.json|"
    r".*\.(model|spm|codes|tiktoken|jinja|tokenizer)"
)
# Files that add tokens one by one, and fields that name other files.
_ADDING = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_NAMING = {
    # A vocabulary that is a text, transformers takes for the name of a file.
    "tokenizer_config.json": ("fast_tokenizer_files", "vocab", "merges"),
    "config.json": ("configuration_files",),
}
# Values that describe an added token, or stand beside it.
_VALUES = 8
# Bytes of the longest header that safetensors reads.
_MOST_HEADER = 100_000_000


def check_model_folder(directory: Path) -> None:
    """Refuse a folder with a pipe or a device, or with a giant file that describes it.

    A link may lead anywhere else; one that leads nowhere is a file that is missing.
    """
    for path, size in _files(directory):
        if _DESCRIBES.fullmatch(path.name) and size > MOST_TEXT:
            raise InputError(
                f"{path}: {size:,} bytes (such a file of a model has at most "
                f"{MOST_TEXT:,})",
                hint="check that it is a file of the model",
            )


def check_tokenizer_files(directory: Path) -> None:
    """Refuse files of a tokenizer with more tokens than any has, before it is built.

    Tokens are counted by the marks between them, which is quick and may count some too
    many; transformers would take a minute and 2 GB for three million.
    """
    check_model_folder(directory)
    for path, size in _files(directory):
        if path.name in _NAMING:
            _check_names(path)
        # A token takes at least a byte.
        if size <= MOST_ADDED or not _DESCRIBES.fullmatch(path.name):
            continue
        if path.name in _ADDING:
            fields = read_json_object(path)
            lists = [one for one in fields.values() if isinstance(one, list | dict)]
            most_added = max(map(len, [fields, *lists]))
            if most_added > MOST_ADDED:
                raise _too_many(path, "added tokens", most_added, MOST_ADDED)
        elif path.suffix == ".json":
            _check_vocabulary(path)
        else:
            # A piece of SentencePiece begins by two such bytes, and may hold others; a
            # merge makes a token, and some tokens are made twice.
            per_token = {".model": 4, ".spm": 4}.get(path.suffix, 2)
            n_lines = read_limited(path).count(b"\n")
            if n_lines > per_token * MOST_TOKENS:
                raise _too_many(path, "lines", n_lines, per_token * MOST_TOKENS)


def check_tensor_names(path: Path) -> None:
    """Refuse a safetensors file that names a tensor twice: readers differ in which.

    What else is wrong with a header, safetensors says.
    """

    def once(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise InputError(
                    f"{path}: names {name!r} twice",
                    hint="save it again with one tensor per name",
                )
            seen.add(name)

    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        data = file.read(size) if size <= _MOST_HEADER else b""
    if data.lstrip().startswith(b"{"):
        try:
            parse_json(data, path, object_pairs_hook=once)
        except InputError as e:
            if not isinstance(e.__cause__, ValueError | RecursionError):
                raise


def _files(directory: Path) -> Iterator[tuple[Path, int]]:
    """Plain files of a folder, and templates in a folder of it, with their sizes."""
    for folder, pattern in ((directory, "*"), (directory / TEMPLATES, "*.jinja")):
        # Names that cannot be listed can still be opened.
        if folder.is_dir() and not os.access(folder, os.R_OK):
            raise InputError(
                f"{folder}: its files cannot be listed", hint="chmod u+rx the folder"
            )
        for path in sorted(folder.glob(pattern)):
            try:
                found = path.stat()
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode):
                continue
            # Files of the kernel have no size, and may have no end.
            place = os.path.realpath(path) if path.is_symlink() else ""
            is_kernel = place.startswith(("/proc/", "/sys/"))
            if not stat.S_ISREG(found.st_mode) or is_kernel:
                raise InputError(
                    f"{path}: a pipe or a device, not a file of a model",
                    hint="remove it",
                )
            yield path, found.st_size


def _check_names(path: Path) -> None:
    """Refuse a file that names another one that is not beside it."""
    fields = read_json_object(path)
    for field in _NAMING[path.name]:
        names = fields.get(field)
        if isinstance(names, str):
            names = [names]
        elif not field.endswith("_files") or not isinstance(names, list | dict):
            continue
        for name in names:
            if isinstance(name, str) and Path(name).name != name:
                raise InputError(
                    f"{path}: {field} holds {name[:100]!r}, but must name files in its "
                    "folder"
                )


def _check_vocabulary(path: Path) -> None:
    """Refuse a JSON file with too many tokens, or objects: one for each token added."""
    data = read_limited(path)
    n_objects = data.count(b"{")
    if n_objects > MOST_ADDED:
        raise _too_many(path, "added tokens", n_objects, MOST_ADDED)
    most = MOST_TOKENS + _VALUES * n_objects
    # A vocabulary is an object, or a list of lists, as merges are.
    for mark, per_token in ((b":", 1), (b"[", 2), (b",", 4)):
        n_marks = data.count(mark)
        if n_marks > per_token * most:
            raise _too_many(path, f"of {mark.decode()!r}", n_marks, per_token * most)


def _too_many(path: Path, what: str, found: int, most: int) -> InputError:
    return InputError(
        f"{path}: {found:,} {what} (a tokenizer has at most {most:,})",
        hint="check that it is a file of a tokenizer",
    )
