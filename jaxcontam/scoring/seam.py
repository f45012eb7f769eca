"""What lies around the boundary of two examples, where their order is remembered."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Seam:
    """What a pair test reads and scores of each pair of examples; 0 is all.

    Attributes:
        context_tokens: Last tokens of the example before.
        score_tokens: First tokens of the example itself, the only ones scored.

    Tokens that all examples of the file end or begin with (`"}`) come on top: they tell
    no example from another.
    """

    context_tokens: int = 0
    score_tokens: int = 0


WHOLE = Seam()
"""Pairs of whole examples."""
SEAM = Seam(context_tokens=96, score_tokens=64)
"""What an audit scores unless it is told otherwise."""
