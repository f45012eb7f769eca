"""Windows over sequences longer than the model's context."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a sequence that goes through the model at once.

    Attributes:
        start: First token read.
        stop: One past the last target.
        first_target: First token that this window scores.
    """

    start: int
    stop: int
    first_target: int


def windows(n_tokens: int, context: int) -> list[Window]:
    """Cover tokens 1..n-1 as targets, each once.

    Up to `context` tokens make one window. Longer sequences move on by half a
    context, and each window after the first scores only what the one before it did
    not, so that every target has at least half a context before it. The last window
    is moved back to end with the sequence. A function of the length alone: all
    orders of the same examples are treated alike.
    """
    if n_tokens <= context:
        return [Window(0, n_tokens, 1)]
    found = [Window(0, context, 1)]
    while found[-1].stop < n_tokens:
        stop = min(found[-1].stop + max(1, context // 2), n_tokens)
        found.append(Window(stop - context, stop, found[-1].stop))
    return found
