"""What a report says of the machine and the moment it was made."""

import datetime
import importlib.metadata
import platform
import shlex
from collections.abc import Sequence

from jaxcontam.results import ModelInfo, Report

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


def command_line(words: Sequence[str]) -> str:
    """The line that makes a report again, from the words of its command."""
    # Studies are modules of a checkout, and commands never have a dot.
    is_study = bool(words) and "." in words[0]
    return shlex.join(["python", "-m", *words] if is_study else ["jaxcontam", *words])


def model_words(model: ModelInfo) -> str:
    """Size, context and number format of a model; what is unknown is left out."""
    parts = []
    if model.n_parameters is not None:
        parts.append(f"{model.n_parameters:,} parameters")
    if model.context is not None:
        parts.append(f"context {model.context}")
    served = model.served
    parts.append(model.dtype if served is None else f"served ({served.way})")
    return ", ".join(parts)


def provenance_rows(report: Report) -> list[tuple[str, str]]:
    """What was run on what: name and value, for a table of two columns."""
    rows = [
        ("jaxcontam", report.jaxcontam),
        ("made", f"{report.started}, in {report.wall_seconds:.0f} s"),
        ("seed", str(report.seed)),
    ]
    for name, model in (("original model", report.original), ("model", report.model)):
        if model is not None:
            rows.append((name, f"{model.name}, {model_words(model)}"))
            rows.append((f"digest of the {name}", model.fingerprint))
            if model.precision != "unknown":
                rows.append((f"precision of the {name}", model.precision))
    rows += [
        (f"reference {one.name}", f"{model_words(one)}, {one.fingerprint}")
        for one in report.references
    ]
    if (device := report.device) is not None:
        words = f"{device.n} x {device.kind} ({device.platform})"
        if device.n_model > 1:
            words += f", weights divided among {device.n_model}"
        rows.append(("device", words))
    libraries = ", ".join(f"{name} {at}" for name, at in report.versions.items())
    rows.append(("libraries", libraries))
    digests = _data_digests(report) | report.digests
    return [*rows, *((f"digest of {name}", at) for name, at in digests.items())]


def _data_digests(report: Report) -> dict[str, str]:
    """Name of each benchmark or file of texts, with the digest of what was read."""
    found: dict[str, str] = {}
    for row in report.results:
        found.setdefault(row.benchmark, row.fingerprint)
    study = report.study or {}
    if "fingerprint" in study:
        name = str(study.get("name", "the texts"))
        found.setdefault(name, str(study["fingerprint"]))
    return found
