"""What a report says of the machine and the moment it was made."""

import datetime
import importlib.metadata
import platform
import shlex
from collections.abc import Mapping
from typing import Any

from jaxcontam.report.model_words import device_words, model_words

_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "scipy", "transformers", "tokenizers")


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that compute the numbers."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def utc_now() -> str:
    """ISO 8601 to the second, UTC."""
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    return now.isoformat().replace("+00:00", "Z")


def command_line(document: Mapping[str, Any]) -> str:
    """The line that makes a report again."""
    words = document["command"]
    # Studies are modules of a checkout, and commands never have a dot.
    is_study = bool(words) and "." in words[0]
    return shlex.join(["python", "-m", *words] if is_study else ["jaxcontam", *words])


def provenance_rows(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was run on what: name and value, for a table of two columns."""
    rows = [
        ("jaxcontam", document["jaxcontam"]),
        ("made", f"{document['started']}, in {document['wall_seconds']:.0f} s"),
        ("seed", str(document["seed"])),
    ]
    for name, model in (
        ("original model", document.get("original")),
        ("model", document["model"]),
    ):
        if model is not None:
            rows.append((name, f"{model['name']}, {model_words(model)}"))
            rows.append((f"digest of the {name}", model["fingerprint"]))
            if model["precision"] != "unknown":
                rows.append((f"precision of the {name}", model["precision"]))
    rows += [("device", words) for words in device_words(document)]
    versions = document["versions"]
    rows.append(("libraries", ", ".join(f"{k} {v}" for k, v in versions.items())))
    rows += [(f"digest of {name}", digest) for name, digest in _data(document).items()]
    rows += [
        (f"digest of {name}", digest)
        for name, digest in document.get("digests", {}).items()
    ]
    return rows


def _data(document: Mapping[str, Any]) -> dict[str, str]:
    """Name of each benchmark or file of texts, with the digest of what was read."""
    found: dict[str, str] = {}
    for row in document["results"]:
        if (name := row.get("benchmark")) is not None and "fingerprint" in row:
            found.setdefault(name, row["fingerprint"])
    study = document.get("study") or {}
    if "fingerprint" in study:
        found.setdefault(study.get("name", "the texts"), study["fingerprint"])
    return found
