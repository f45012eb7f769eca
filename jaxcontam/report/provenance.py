"""What a report says of the machine and the moment it was made."""

import datetime
import importlib.metadata
import platform

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
