"""Background documents from files."""

import json
from collections.abc import Sequence
from pathlib import Path

from jaxcontam.errors import InputError

_SUFFIXES = (".jsonl", ".txt")


def read_documents(paths: Sequence[Path]) -> list[str]:
    """Documents of .jsonl files (field `text`) and .txt files (one document each).

    A folder stands for its files of these kinds, in the order of their names.

    Raises:
        InputError: If a path is missing, of another kind, or a record has no text.
    """
    documents: list[str] = []
    for path in paths:
        if path.is_dir():
            files = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES)
        elif path.suffix in _SUFFIXES:
            files = [path]
        else:
            raise InputError(
                f"{path}: not a corpus file", hint="a folder, a .jsonl or a .txt"
            )
        for file in files:
            documents += _read(file)
    return documents


def _read(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: byte {e.start}: not UTF-8") from e
    if path.suffix == ".txt":
        return [text] if text.strip() else []
    documents = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)["text"]
            if not isinstance(document, str):
                raise TypeError("text is no string")
            documents.append(document)
        except (ValueError, KeyError, TypeError) as e:
            raise InputError(
                f"{path}:{number}: no JSON object with a field 'text'"
            ) from e
    return documents
