"""The two pictures of concepts.md, from a finished quickstart.

`python -m eval.quickstart && python docs/draw_pictures.py runs/quickstart`
"""

import json
import sys
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxcontam.reports.figure import BLUE, ORANGE, STYLE, svg_text

_SETS = {
    "pydocs-0a": "never in the training text",
    "pydocs-10": "ten times in the training text",
}
_N_ORDERS = 200


def scores_of(run: Path) -> dict[str, np.ndarray]:
    """Set -> (K, m + 1) log-likelihoods of `stratified`, the published order first."""
    results = json.loads((run / "report.json").read_text(encoding="utf-8"))["results"]
    with np.load(run / "orders.npz") as archive:
        return {
            row["benchmark"]: archive[f"{number}/scores"]
            for number, row in enumerate(results)
            if row["method"] == "stratified" and row["benchmark"] in _SETS
        }


def orders_svg(scores: dict[str, np.ndarray]) -> str:
    """Log-likelihood of whole sets in random orders, and in the published one."""
    rng = np.random.default_rng(0)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 2.8), layout="constrained")
        for axes, (name, words) in zip(
            figure.subplots(1, 2, sharex=True), _SETS.items(), strict=True
        ):
            loglik_KM = scores[name]
            K, M = loglik_KM.shape
            columns_NK = rng.integers(1, M, size=(_N_ORDERS, K))
            sums_N = loglik_KM[np.arange(K), columns_NK].sum(axis=1)
            published = loglik_KM[:, 0].sum()
            middle = sums_N.mean()
            heights_N = rng.uniform(0, 1, _N_ORDERS)
            axes.plot(
                sums_N - middle, heights_N, ".", color=BLUE, ms=3, label="random orders"
            )
            axes.axvline(published - middle, color=ORANGE, lw=2, label="published")
            axes.set_title(words)
            axes.set_xlabel("log-likelihood of the set, nats from the mean")
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        return svg_text(figure)


def strata_svg(scores: dict[str, np.ndarray]) -> str:
    """Rows of scores in the units of each row's own spread."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        for axes, (name, words) in zip(
            figure.subplots(1, 2), _SETS.items(), strict=True
        ):
            loglik_KM = scores[name]
            centred = loglik_KM - loglik_KM.mean(axis=1, keepdims=True)
            standard = centred / centred.std(axis=1, keepdims=True)
            axes.imshow(standard, cmap="Blues", vmin=-2, vmax=2.5, aspect="auto")
            axes.axvline(0.5, color=ORANGE, lw=2)
            n_highest = int((loglik_KM.argmax(axis=1) == 0).sum())
            K, M = loglik_KM.shape
            axes.set_title(
                f"{words}: published\nlikeliest in {n_highest} of {K} strata "
                f"({K / M:.1f} by chance)"
            )
            axes.set_xticks([0, *range(1, M)], ["published", *[""] * (M - 1)])
            axes.set_xlabel("m = 9 random orders to the right of the line", fontsize=8)
            axes.set_ylabel("stratum")
        return svg_text(figure)


def main() -> int:
    """Write both pictures beside concepts.md."""
    (run,) = sys.argv[1:]
    scores = scores_of(Path(run))
    folder = Path(__file__).parent / "pictures"
    for name, draw in (("orders", orders_svg), ("strata", strata_svg)):
        (folder / f"{name}.svg").write_text(draw(scores) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
