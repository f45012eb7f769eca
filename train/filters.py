"""Which documents are read, and how planted examples are cut.

To add a filter: its flag as a field of `Data`, its rule in `document_filter`.
"""

import dataclasses
from collections.abc import Callable

from train.options import AT_LEAST_1, option


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """How texts are read; the manifest's recipe has every field."""

    separator: str = option("\n", r"Text after each example (default: \n)")
    max_example_tokens: int | None = option(
        None,
        "Longer examples are cut, separator included (default: none are)",
        AT_LEAST_1,
    )


READ_ALL = Data()


def document_filter(data: Data) -> Callable[[str], bool] | None:
    """Tell which documents may be trained on, or held out; None: all of them.

    The others are counted in the manifest (`n_left_out`). The tokenizer that a run
    trains does not see them either.
    """
    del data  # no option leaves a document out
    return None
