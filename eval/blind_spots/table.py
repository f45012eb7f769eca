"""Records of models to what each method sees of each form: tables."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

from eval.blind_spots.forms import FORMS
from eval.blind_spots.model import ModelRecord
from eval.blind_spots.seen import (
    COPIED,
    ORDER_TESTS,
    SCORES,
    SET_LEVEL,
    VARIANTS_WITHOUT,
    VERSION_TESTS,
    Seen,
)
from eval.intervals import mean_interval, n_rejected, share_rejected, short
from eval.study import Grid, grouped
from jaxcontam.stats.shares import wilson_interval

LEVEL = 0.001
"""A test finds a set at or below this p-value."""

ORDER_NAMES = tuple(name for names in ORDER_TESTS.values() for name in names)
# Column of what replication copied, beside that of its test.
_WRITTEN = "written"
_WORDS = {form.name: form.words for form in FORMS}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One method on one form, over models; what a method does not give is None.

    Intervals are of 95 % and over models, each of which has its own draw of sets,
    weights and order of training: a share's is Wilson's, a mean's Student's. A mean of
    one model, or of models that all agree, has none.

    Attributes:
        scale: Part of the study.
        copies: Copies of the forms that are planted again and again.
        form: Name.
        method: Name.
        n_models: Models.
        n_found: Models with p at most `LEVEL`; of a test.
        found_low: Lower end of the interval of their share.
        found_high: Upper end.
        median_log10_p: Median log10 p of a test.
        mean: AUC of a score; for replication, the share of instances copied.
        low: Lower end of its interval, cut at 0.
        high: Upper end, cut at 1.
        mean_se: Mean of DeLong's standard errors, of a score: what one model's
            AUC would vary by with other texts.
        tokens: Mean cost.
    """

    scale: str
    copies: int
    form: str
    method: str
    n_models: int
    n_found: int | None = None
    found_low: float | None = None
    found_high: float | None = None
    median_log10_p: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    mean_se: float | None = None
    tokens: float


def cells(records: Sequence[ModelRecord]) -> list[Cell]:
    """One cell a part of the study, form and method, in order of arrival."""
    found = grouped(
        ((record, row) for record in records for row in record.rows),
        lambda one: (one[0].scale, one[0].copies, one[1].form, one[1].method),
    )
    return [_cell(*key, [row for _, row in own]) for key, own in found.items()]


def grids(table: Sequence[Cell]) -> list[Grid]:
    """For each part of the study: order tests, other tests, scores."""
    found = []
    for scale in dict.fromkeys(cell.scale for cell in table):
        own = [cell for cell in table if cell.scale == scale]
        copies, n = own[0].copies, max(cell.n_models for cell in own)
        of_models = f"{copies} copies, {n} model{'s' * (n > 1)}"
        none_high, all_low = wilson_interval(0, n)[1], wilson_interval(n, n)[0]
        found += [
            _grid(
                f"{of_models}: published orders found at p <= {LEVEL:g}, and the "
                f"median p. None of {n} is a share below {_share(none_high)}, all of "
                f"{n} one above {_share(all_low)} (95 %, over models)",
                own,
                ORDER_NAMES,
                _test_words,
            ),
            _grid(
                f"{of_models}: sets found at p <= {LEVEL:g} by their wording, by the "
                "order of their options, by all scores together, by what the model "
                "writes; and the share of instances that it writes out (95 % interval "
                "over models). In reworded sets `variants` compares the planted "
                "wording, too, so that its p is near 1 by design; "
                f"`{VARIANTS_WITHOUT}` leaves it out, and its p is uniform by design",
                own,
                (*VERSION_TESTS, SET_LEVEL, COPIED, _WRITTEN),
                _test_words,
            ),
            _grid(
                f"{of_models}: AUC of texts as published against texts never planted "
                "(95 % interval over models)",
                own,
                SCORES,
                _mean_words,
            ),
        ]
    return found


def share_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Student's 95 % interval of a mean of shares, cut to 0 and 1.

    None for one value, and where all are equal: agreement of a few models would look
    like certainty.
    """
    if len(values) < 2 or min(values) == max(values):
        return None, None
    _, low, high = mean_interval(values)
    return max(0.0, low), min(1.0, high)


def _cell(
    scale: str, copies: int, form: str, method: str, rows: Sequence[Seen]
) -> Cell:
    n = len(rows)
    cell = Cell(
        scale=scale,
        copies=copies,
        form=form,
        method=method,
        n_models=n,
        tokens=statistics.fmean(row.tokens for row in rows),
    )
    logs = [row.log10_p for row in rows if row.log10_p is not None]
    if logs:
        share = share_rejected(logs, LEVEL)
        cell = dataclasses.replace(
            cell,
            n_found=n_rejected(logs, LEVEL),
            found_low=share.low,
            found_high=share.high,
            median_log10_p=statistics.median(logs),
        )
    means = [
        row.n_copied / row.n_asked
        if row.n_copied is not None and row.n_asked
        else row.auc
        for row in rows
    ]
    values = [value for value in means if value is not None]
    if values:
        low, high = share_interval(values)
        mean = statistics.fmean(values)
        cell = dataclasses.replace(cell, mean=mean, low=low, high=high)
    errors = [row.auc_se for row in rows if row.auc_se is not None]
    if errors:
        cell = dataclasses.replace(cell, mean_se=statistics.fmean(errors))
    return cell


def _grid(
    title: str,
    own: Sequence[Cell],
    columns: Sequence[str],
    words: Callable[[Cell], str],
) -> Grid:
    forms = dict.fromkeys(cell.form for cell in own)
    cells = {
        (_WORDS[cell.form], cell.method): words(cell)
        for cell in own
        if cell.method in columns
    }
    if _WRITTEN in columns:
        cells |= {
            (_WORDS[cell.form], _WRITTEN): _mean_words(cell)
            for cell in own
            if cell.method == COPIED
        }
    return Grid.crossed(
        title,
        "planted",
        cells,
        lines=[form.words for form in FORMS if form.name in forms],
        columns=columns,
        empty="-",
    )


def _test_words(cell: Cell) -> str:
    assert cell.n_found is not None and cell.median_log10_p is not None
    return f"{cell.n_found}/{cell.n_models} {_p_words(cell.median_log10_p)}"


def _mean_words(cell: Cell) -> str:
    assert cell.mean is not None
    if cell.low is None or cell.high is None:
        return _share(cell.mean)
    return f"{_share(cell.mean)} ({_share(cell.low)}-{_share(cell.high)})"


def _p_words(log10_p: float) -> str:
    if log10_p > -2:
        return _share(10.0**log10_p)
    return f"1e{math.ceil(log10_p)}"


def _share(value: float) -> str:
    words = short(value)
    return "1" if words == "1.00" else words
