"""Errors of the libraries that read buckets, in words for a user."""

import contextlib
import logging
from collections.abc import Iterator

from jaxcontam.errors import InputError, StorageError, first_line

_REFUSED = (
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    NotImplementedError,
    PermissionError,
    ValueError,
)
# HTTP status codes of libraries that have no type for a refusal.
_REFUSALS = (401, 403)
# Else Python prints what gcsfs logs, tracebacks among it, before the one line.
_SILENT = logging.NullHandler()


def is_url(word: object) -> bool:
    """Whether a word names a place that is no folder here, such as gs://bucket/run."""
    return "://" in str(word)


def is_of_bucket(error: Exception, place: object) -> bool:
    """Whether a library that reads a bucket may have made an error.

    Each has types of its own; Python's and XLA's mean other things.
    """
    return (
        is_url(place)
        and type(error).__module__ != "builtins"
        and not isinstance(error, RuntimeError)
    )


@contextlib.contextmanager
def bucket_errors(flag: str, place: str, done: str) -> Iterator[None]:
    """Turn errors of reading or writing a place into one line.

    Args:
        flag: The flag that named it.
        place: A URL or a folder.
        done: What the block does to it: `read` or `written`.

    Raises:
        InputError: If the place is none, or refuses this machine.
        StorageError: If it is silent.
    """
    where = f"{flag} {place}"
    logging.getLogger("gcsfs").addHandler(_SILENT)
    try:
        yield
    except (InputError, StorageError):
        raise
    except ImportError as e:
        raise InputError(
            f"{where}: such addresses are not read here ({e})",
            hint="install that package: gcsfs for gs://, s3fs for s3://",
        ) from e
    except Exception as e:
        said = first_line(e)[:200]
        # gcsfs says this where the bucket is there, and is not for this account.
        is_refused = "Forbidden" in said or getattr(e, "code", None) in _REFUSALS
        if isinstance(e, _REFUSED) or is_refused:
            raise InputError(
                f"{where}: cannot be {done} ({said})",
                hint="does the bucket exist, and may this machine read and write there?"
                if is_url(place)
                else "a folder, there or to be made, in which this user may write",
            ) from e
        if isinstance(e, OSError) or is_of_bucket(e, place):
            raise StorageError(
                f"{where}: cannot be {done} now ({said})",
                hint=(
                    "is the network there, and this machine logged in? "
                    if is_url(place)
                    else "is the disk there, with room? "
                )
                + "Then run the same command again",
            ) from e
        raise
