"""The page of a training run: what it draws, what it says, what it must not do."""

import dataclasses
import json
import re
import sys

import numpy as np

from tests.support.page_laws import check_page
from tests.support.train_corpus import manifest_of, planted_set
from train.manifest import write_manifest
from train.page import _local_means, main, write_training_page
from train.report import AuditRow, StepLog, metric_rows

_N_STEPS = 40
_SETS = (
    planted_set("control", 0),
    planted_set("few", 2, ((3, 4), (30,))),
    planted_set("many", 9, tuple((step,) for step in range(2, 11))),
    planted_set("mixed", 9, ((7,),) * 9, shuffled=True),
)


def _write(folder, *, sets=_SETS, losses=None, audited=(), reported=()):
    """Files of a run: metrics of blocks of 4 steps of 64 tokens, audits at steps."""
    losses = np.linspace(6, 3, _N_STEPS) if losses is None else losses
    manifest = manifest_of(*sets, n_steps=_N_STEPS, n_tokens=2560)
    write_manifest(manifest, folder / "manifest.json")
    unknown = {"tokens_per_second": None, "mfu": None}
    with StepLog(folder / "metrics.jsonl") as log:
        for last in range(4, len(losses) + 1, 4):
            block = losses[last - 4 : last]
            names = ("loss", "gradient_norm", "parameter_norm", "rate", *reported)
            numbers = dict.fromkeys(names, np.float32(block))
            log.append(metric_rows(last, numbers, 64, seconds=last, **unknown))
    rows = [row for step in audited for one in sets for row in _audit(one, step)]
    with StepLog(folder / "audits.jsonl") as log:
        log.append([dataclasses.asdict(row) for row in rows])
    return folder


def _audit(planted, step):
    of_set = {"step": step, "tokens": 64 * step, "set": planted.name}
    of_set |= dict.fromkeys(("copies", "copies_seen"), planted.copies)
    log10_p = -0.5 - planted.copies * step
    numbers = {"validity": "exact", "log10_p": log10_p, "effect": 0.125 * step}
    numbers |= {"p_value": max(1e-300, 10**log10_p), "effect_se": 0.25, "mde": 1.5}
    ranks = {"auc": 0.75, "auc_se": 0.03, "reference": ("control",)}
    return [
        AuditRow(method="adjacency", **of_set, **numbers),
        AuditRow(method="min_k", **of_set, **ranks),
    ]


def _page(folder):
    return write_training_page(folder).read_text(encoding="utf-8")


def _words(page):
    """What the page says, without its markup."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.replace("</td>", " ")).split())


def test_mean_around_each_step_is_that_of_its_neighbours():
    values = np.random.default_rng(0).normal(size=50)
    by_hand = [values[max(0, i - 3) : i + 4].mean() for i in range(50)]
    # Differences of running sums of 50 values of order 1.
    np.testing.assert_allclose(_local_means(values, 3), by_hand, atol=1e-13)
    # It passes over what is no number.
    values = np.array([1.0, np.nan, 3.0, np.nan, np.nan, np.nan])
    found = _local_means(values, 1)
    np.testing.assert_array_equal(found, [1.0, 2.0, 3.0, 3.0, np.nan, np.nan])


def test_numbers_that_the_loss_reports_have_a_panel_of_their_own(tmp_path):
    assert "reported" not in _page(_write(tmp_path))
    folder = _write(tmp_path, reported=("z_loss",))
    drawn = _page(folder)
    assert "z_loss" in drawn and "reported" in drawn
    # Of a run that other code went on with, some steps have it.
    log = next(folder.rglob("metrics.jsonl"))
    first, *rows = map(json.loads, log.read_text().splitlines())
    for row in rows:
        del row["z_loss"]
    rows[-1]["entropy"] = 1.0
    log.write_text("".join(json.dumps(row) + "\n" for row in (first, *rows)))
    drawn = _page(folder)
    assert "z_loss" in drawn and "entropy" in drawn


def test_page_of_a_run_that_goes_on_shows_what_there_is(tmp_path):
    _write(tmp_path, losses=[4.0] * 8 + [float("nan")] * 4)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 13, "lo')
    words = _words(_page(tmp_path))
    assert "At step 12 of 40 (30%)." in words
    assert "mean of some 50 steps: 4.000 nats" in words
    assert "The loss of 4 steps was not a number: training diverged." in words
    assert "Memorisation" not in words


def test_figures_and_tables_hold_every_set_with_what_audits_found(tmp_path):
    page = _page(_write(tmp_path, audited=(0, 20, 40)))
    check_page(page)
    loss, memory = (page[found.start() :] for found in re.finditer("<svg", page))
    for label in ("2x few", "9x many", "9x shuffled mixed"):
        assert f">{label}<" in loss[: loss.index("</svg>")]
        assert memory[: memory.index("</svg>")].count(f">{label}<") == 1
    assert ">control control<" in memory
    sets = _words(page[page.index("<h2>Sets") :])
    assert "many 9 12 150 published raw uniform 2 10 not searched" in sets
    assert "mixed 9 12 150 shuffled raw uniform 7 7 not searched" in sets


def test_curves_pass_through_the_audits_numbers(tmp_path, monkeypatch):
    """What is drawn, asked of matplotlib: by tokens, -log10 p and AUC."""
    drawn = {}
    from matplotlib.axes import Axes

    plain = Axes.errorbar

    def errorbar(self, x, y, **rest):
        drawn[self.get_subplotspec().rowspan.start, rest["label"]] = (x, list(y))
        return plain(self, x, y, **rest)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    _page(_write(tmp_path, sets=(planted_set("few", 2),), audited=(0, 10, 20)))
    tokens = [0, 640, 1280]
    assert drawn == {
        (0, "2x few"): (tokens, [0.5, 20.5, 40.5]),
        (1, "2x few"): (tokens, [0.75] * 3),
    }


def test_names_from_outside_are_text(tmp_path):
    name = "_<b>$5 & $x_1$"
    sets = (planted_set(name, 2, ((3,),)),)
    page = _page(_write(tmp_path, sets=sets, audited=(20,)))
    assert "<b>" not in page
    # In both figures, once as a line and once in the legend, and in the tables.
    assert page.count("_&lt;b&gt;$5 &amp; $x_1$") >= 5


def test_a_year_of_steps_still_makes_a_light_page(tmp_path, monkeypatch, capsys):
    losses = np.random.default_rng(0).normal(4, 0.3, size=20_000).tolist()
    sets = tuple(
        planted_set(f"set{i}", 1, (tuple(range(1, 20_000, i + 1)),)) for i in range(10)
    )
    _write(tmp_path, losses=losses, sets=sets, audited=range(0, 40, 4))
    monkeypatch.setattr(sys, "argv", ["train.page", str(tmp_path)])
    assert main() == 0
    page = tmp_path / "training.html"
    assert capsys.readouterr().out == f"{page}\n"
    # 20,000 points a curve and 58,000 marks would take several megabytes.
    assert page.stat().st_size < 600_000
