"""Made-up questions, and how many of them a set has."""

import itertools

from eval.python_docs import Question

N, COPIES = 6, 4


def made_up_questions(n):
    """With words that the table exchanges and clauses that can move."""
    names = map("".join, itertools.product("abcdefgh", repeat=4))
    return [
        Question(
            f"Return the value number {i} of a list from the file w{i}", f"m.{name}"
        )
        for i, name in zip(range(100, 100 + n), names, strict=False)
    ]
