"""Names in words for people: of pre-tests, and of many files."""

from collections.abc import Sequence

_PLAIN = {
    "length_autocorrelation": "neighbours of like length",
    "length_trend": "length that rises or falls along the file",
    "length_steps": "length that rises or falls from one example to the next",
    "alphabetical_trend": "alphabetical order{of_field}",
    "number_trend": "numbers in the text{in_field} that rise or fall along the file",
    "number_steps": "numbers in the text{in_field} that rise or fall from one example "
    "to the next",
    "tfidf_adjacency": "likeness of neighbours' words",
    "adjacent_duplicates": "near-duplicates side by side",
    "shared_beginning": "texts that begin alike side by side",
    "shared_context": "examples that share {field} side by side",
    "equal_neighbours": "neighbours of equal {field}",
    "label_trend": "sorting by {field}",
    "label_autocorrelation": "neighbours of like {field}",
    "option_length": "options sorted by length",
    "option_alphabet": "options in alphabetical order",
    "answer_place": "right options in some places more than in others",
    "label_steps": "{field} that rises or falls from one example to the next",
    "blind_attraction": "neighbours that are alike to a scorer without a model "
    "({field})",
    "blind_lags": "examples some places apart that are alike to a scorer without a "
    "model ({field})",
    "blind_runs": "parts of the file that are more alike within than between, to a "
    "scorer without a model ({field})",
    "blind_direction": "a direction that a scorer without a model finds ({field})",
    "forward_numbers": "numbers anywhere in the text that count on",
    "forward_dates": "dates, times and ordinals that count on",
    "forward_names": "names that are handed on to the next example",
    "forward_references": "examples that refer to the one before",
    "forward_turns": "questions before their answers",
    "forward_translations": "examples beside their translations",
    "learned_direction": "a rule that tells which of two examples comes first",
}


_MOST_TOLD = 5


def told(names: Sequence[str]) -> str:
    """The first names of files, and how many more there are."""
    rest = len(names) - _MOST_TOLD
    return ", ".join(names[:_MOST_TOLD]) + (f" and {rest} more" if rest > 0 else "")


def plain_name(name: str) -> str:
    """The name of a pre-test in words for people."""
    kind, _, field = name.partition(":")
    words = _PLAIN.get(kind, kind.replace("_", " ") + "{of_field}")
    return words.format(
        field=field,
        of_field=f" of {field}" if field else "",
        in_field=f" ({field})" if field else "",
    )
