"""Progress of one part of a work, told as progress of the whole."""

from collections.abc import Callable

Told = Callable[[int, int], None]
"""Called with what is done and what there is in all, in any unit."""


def progress_after(progress: Told | None, done: int, total: int) -> Told | None:
    """What a part is to tell, so that `progress` hears of the whole.

    Args:
        progress: Of the whole; None hears nothing.
        done: Of the whole, before this part.
        total: Of the whole; where it is an estimate, no more than it is ever told.
    """
    if progress is None:
        return None
    return lambda now, _: progress(min(done + now, total), total)
