"""One-line error for an exhausted device memory."""

import contextlib
from collections.abc import Iterator

from jaxcontam.errors import InputError

# Status of XLA on every platform, when a program is loaded or run.
_EXHAUSTED = "RESOURCE_EXHAUSTED"


class NoRoomError(InputError):
    """The device has no memory for a batch; the scorer retries with half batches."""


@contextlib.contextmanager
def room_for(what: str) -> Iterator[None]:
    """Turn a device's out-of-memory error in the block into `NoRoomError`.

    Args:
        what: What is computed, such as `8 rows of 512 ids`.

    Raises:
        NoRoomError: Instead of the device's error and its arrays.
    """
    try:
        yield
    except RuntimeError as e:
        if _EXHAUSTED not in str(e):
            raise
        raise NoRoomError(
            f"the device has no memory for {what}",
            hint="a smaller --batch-tokens, --dtype bfloat16 or --mesh model=N needs "
            "less; or the longest examples cut with --max-example-tokens",
        ) from None
