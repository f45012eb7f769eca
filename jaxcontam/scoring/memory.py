"""What to say when a device has no memory for a batch."""

import contextlib
from collections.abc import Iterator

from jaxcontam.errors import InputError

# What XLA says on every platform, where a program is loaded or run.
_EXHAUSTED = "RESOURCE_EXHAUSTED"


class NoRoomError(InputError):
    """The device has no memory for a batch; scored in halves where that can be."""


@contextlib.contextmanager
def room_for(what: str) -> Iterator[None]:
    """Tell exhausted memory of a device from all other errors of the block.

    Args:
        what: Is computed, such as `8 rows of 512 ids`.

    Raises:
        NoRoomError: In place of the device's error, whose pages of text and whose
            arrays are dropped.
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
