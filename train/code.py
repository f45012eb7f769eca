"""What a result was made with: versions of the code, digests of what it read."""

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("jaxcontam", "train")


def code_version() -> str | None:
    """Git commit of this checkout, with what was edited since; None outside of one."""
    try:
        commit, edits = (
            subprocess.run(
                ["git", *words], cwd=_ROOT, capture_output=True, check=True
            ).stdout
            for words in (("rev-parse", "HEAD"), ("diff", "HEAD"))
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    version = commit.decode().strip()
    if edits:
        version += f"+{hashlib.sha256(edits).hexdigest()[:8]}"
    return version


def source_digest() -> str:
    """Digest of every source file that trains and tests, whether git knows it or not.

    Narrower than a commit: a new README makes no finished model obsolete.
    """
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            digest.update(str(path.relative_to(_ROOT)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


def corpus_digest(documents: Sequence[str]) -> str:
    """SHA-256 over the documents' digests in their order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(hashlib.sha256(document.encode("utf-8")).digest())
    return f"sha256:{digest.hexdigest()}"
