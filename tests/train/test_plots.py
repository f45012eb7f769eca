"""The page of a training run: what it draws, what it says, what it must not do."""

import dataclasses
import re
import sys

import numpy as np

from tests.support.page_laws import check_page
from train.manifest import Manifest, PlantedSet, write_manifest
from train.page import _local_means, main, write_training_page
from train.step_log import AuditRow, MetricsLog, row_bytes

_STEP_TOKENS = 64
_N_STEPS = 40


def _planted(name, copies, steps=(), shuffled=False):
    return PlantedSet(
        name=name,
        copies=copies,
        shuffled=shuffled,
        n_examples=12,
        fingerprint="",
        content_digest="",
        token_offsets=(),
        orders=(),
        steps=steps,
        n_tokens=150,
        file="",
    )


_SETS = (
    _planted("control", 0),
    _planted("few", 2, ((3, 4), (30,))),
    _planted("many", 9, tuple((step,) for step in range(2, 11))),
    _planted("mixed", 9, ((7,),) * 9, shuffled=True),
)


def _write(folder, *, sets=_SETS, losses=None, audited=(), finished=True):
    """Files of a run: metrics of blocks of 4 steps a second, audits at steps."""
    n_losses = _N_STEPS if losses is None else len(losses)
    losses = np.linspace(6, 3, n_losses) if losses is None else losses
    manifest = Manifest(
        jaxcontam="9.9",
        code="abcdef",
        seed=3,
        preset="pulse",
        corpus_digest="sha256:123",
        separator="\n",
        max_example_tokens=None,
        context=32,
        n_tokens=_N_STEPS * _STEP_TOKENS,
        n_canary_tokens=640,
        n_steps=_N_STEPS,
        finished=finished,
        stream="stream.npy",
        sets=sets,
    )
    write_manifest(manifest, folder / "manifest.json")
    with MetricsLog(folder / "metrics.jsonl") as log:
        for last in range(4, n_losses + 1, 4):
            log.append(
                last,
                losses[last - 4 : last],
                tokens_a_step=_STEP_TOKENS,
                rates=[1e-3 / last] * 4,
                seconds=last / 4,
            )
    rows = [row for step in audited for one in sets for row in _audit(one, step)]
    audits = row_bytes([dataclasses.asdict(row) for row in rows])
    (folder / "audits.jsonl").write_bytes(audits)
    return folder


def _audit(planted, step):
    row = AuditRow(
        step=step,
        tokens=step * _STEP_TOKENS,
        set=planted.name,
        copies=planted.copies,
        copies_seen=planted.copies,
        method="adjacency",
    )
    log10_p = -0.5 - planted.copies * step
    return [
        dataclasses.replace(
            row,
            validity="exact",
            p_value=max(1e-300, 10**log10_p),
            log10_p=log10_p,
            effect=0.125 * step,
            effect_se=0.25,
            mde=1.5,
        ),
        dataclasses.replace(
            row, method="min_k", auc=0.75, auc_se=0.03, reference=("control",)
        ),
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


def test_mean_around_each_step_passes_over_what_is_no_number():
    values = np.array([1.0, np.nan, 3.0, np.nan, np.nan, np.nan])
    found = _local_means(values, 1)
    np.testing.assert_array_equal(found, [1.0, 2.0, 3.0, 3.0, np.nan, np.nan])


def test_page_of_a_run_that_goes_on_shows_what_there_is(tmp_path):
    _write(tmp_path, losses=np.full(12, 4.0), finished=False)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 13, "lo')
    words = _words(_page(tmp_path))
    assert "At step 12 of 40 (30%)." in words
    assert "mean of some 50 steps: 4.000 nats" in words
    assert "Memorisation" not in words


def test_page_says_that_training_diverged(tmp_path):
    losses = np.full(_N_STEPS, 5.0)
    losses[30:] = np.nan
    words = _words(_page(_write(tmp_path, losses=losses)))
    assert "The loss of 10 steps was no number: training diverged." in words


def test_figures_name_every_set_with_its_copies(tmp_path):
    page = _page(_write(tmp_path, audited=(0, 20, 40)))
    loss, memory = (page[found.start() :] for found in re.finditer("<svg", page))
    for label in ("2x few", "9x many", "9x shuffled mixed"):
        assert f">{label}<" in loss[: loss.index("</svg>")]
        assert memory[: memory.index("</svg>")].count(f">{label}<") == 1
    assert ">control control<" in memory


def test_tables_hold_what_the_audits_found(tmp_path):
    page = _page(_write(tmp_path, audited=(20, 40)))
    last = page[page.index("Last audit") : page.index("<details>")]
    rows = [_words(row) for row in last.split("<tr>")[2:]]
    assert rows == [
        "many 9 of 9 2,560 adjacency ≤ 3.2e-361 5.00 ± 0.25 1.5 0.75 ± 0.03 control",
        "mixed 9 of 9 2,560 adjacency ≤ 3.2e-361 5.00 ± 0.25 1.5 0.75 ± 0.03 control",
        "few 2 of 2 2,560 adjacency ≤ 3.2e-81 5.00 ± 0.25 1.5 0.75 ± 0.03 control",
        "control 0 of 0 2,560 adjacency ≤ 0.317 5.00 ± 0.25 1.5 0.75 ± 0.03 control",
    ]
    assert "1,280" in page[page.index("<details>") :]
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
    _page(_write(tmp_path, sets=(_planted("few", 2),), audited=(0, 10, 20)))
    tokens = [0, 640, 1280]
    assert drawn == {
        (0, "2x few"): (tokens, [0.5, 20.5, 40.5]),
        (1, "2x few"): (tokens, [0.75] * 3),
    }


def test_page_keeps_the_laws_of_all_pages(tmp_path):
    check_page(_page(_write(tmp_path, audited=(20,))))


def test_names_from_outside_are_text(tmp_path):
    name = "_<b>$5 & $x_1$"
    page = _page(_write(tmp_path, sets=(_planted(name, 2, ((3,),)),), audited=(20,)))
    assert "<b>" not in page
    # In both figures, once as a line and once in the legend, and in the tables.
    assert page.count("_&lt;b&gt;$5 &amp; $x_1$") >= 5


def test_a_year_of_steps_still_makes_a_light_page(tmp_path):
    losses = np.random.default_rng(0).normal(4, 0.3, size=20_000)
    sets = tuple(
        _planted(f"set{i}", 1, (tuple(range(1, 20_000, i + 1)),)) for i in range(10)
    )
    _write(tmp_path, losses=losses, sets=sets, audited=range(0, 40, 4))
    # 20,000 points a curve and 58,000 marks would take several megabytes.
    assert len(_page(tmp_path)) < 600_000


def test_command_prints_where_the_page_stands(tmp_path, monkeypatch, capsys):
    _write(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.page", str(tmp_path)])
    assert main() == 0
    assert capsys.readouterr().out == f"{tmp_path / 'training.html'}\n"
    monkeypatch.setattr(sys, "argv", ["train.page", str(tmp_path / "none")])
    assert main() == 2
    assert "manifest.json: no manifest" in capsys.readouterr().err
