"""What does CoDeC find, and how often does it find something in files never read?

Question: files of texts that models trained here read 0 to 50 times, beside as many
texts that they never read: the share of each that is read worse after another text of
its file, and how often the score ranks the file first at 5 % (permuted labels).
Command: `python -m eval.codec`. Hardware: one CPU core, minutes; the models are those
of `eval.membership`. Headline: docs/results/codec.md, which is the table of this study.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np

from eval.membership.copies import FULL, TINY, Bench, draw_texts, planted_model
from eval.membership.texts import read_pool
from eval.study import Clock, Grid, finish_study, grouped, run_study
from jaxcontam.analyses.known_texts import MEMBER, NONMEMBER, RunTexts, draw_company
from jaxcontam.commands.flags import check_positive, check_seed, flags_of
from jaxcontam.methods import SCORES
from jaxcontam.methods.membership.plan import Inputs, score_texts
from jaxcontam.methods.membership.text_model import TextModel
from jaxcontam.stats.proportions import wilson_interval
from jaxcontam.stats.relabelling import auc_p_values


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file: how often it was read, both shares above 0, and the p-value."""

    copies: int
    share: float
    unseen: float
    p_value: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Score files of known texts after other texts of theirs."""

    n_files: int = 50
    """Clean files of each model; a fifth of each number of copies."""
    models: int = 4
    """Models that read them."""
    n_texts: int = 100
    """Texts of a file."""
    seed: int = 0
    """The first seed of the models."""
    any_code: bool = False
    """Take finished models that other code trained; their manifests say which."""
    models_in: Path = Path("runs/membership-study")
    """Folder of the models and their scores; that of `eval.membership`."""
    out: Path = Path("runs/codec")
    """Folder for the table and its numbers."""
    tiny: bool = False
    """A pulse run, whose numbers mean nothing."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "n_files", "models", "n_texts")

    def run(self) -> dict[str, Any]:
        """Train what is missing, score, print; returns the numbers."""
        clock = Clock.start()
        seeds = tuple(range(self.seed, self.seed + self.models))
        bench = Bench(
            scale=TINY if self.tiny else FULL,
            pool=read_pool(),
            seeds=seeds,
            out=self.models_in,
            any_code=self.any_code,
        )
        found = []
        for seed in seeds:
            rng, draw = np.random.default_rng(seed), draw_texts(bench, seed)
            model = bench.ready(planted_model(bench, draw, seed))
            n = min(self.n_texts, len(draw.unseen) // 2)
            for copies, texts in {0: draw.unseen, **draw.members}.items():
                for _ in range(self.n_files // 5 if copies else self.n_files):
                    unseen = rng.permutation(draw.unseen).tolist()
                    own = rng.permutation(texts).tolist() if copies else unseen[n:]
                    found.append(codec_file(copies, own[:n], unseen[:n], model, rng))
        columns = {
            "copies": lambda of: str(of[0].copies),
            "share above 0": lambda of: f"{np.mean([one.share for one in of]):.1%}",
            "of unseen": lambda of: f"{np.mean([one.unseen for one in of]):.1%}",
            "p <= .05": found_words,
        }
        files = grouped(found, lambda one: one.copies).values()
        return finish_study(
            "codec",
            flags_of(self),
            clock=clock,
            out=self.out,
            numbers={"files": [dataclasses.asdict(one) for one in found]},
            grids=[Grid.of("CoDeC: files beside unseen texts", files, columns)],
        )


def codec_file(
    copies: int,
    own: list[str],
    unseen: list[str],
    model: TextModel,
    rng: np.random.Generator,
) -> File:
    """A file and unseen texts, each text after another one of its side."""
    roles = (MEMBER,) * len(own) + (NONMEMBER,) * len(unseen)
    texts, is_own = (*own, *unseen), np.arange(len(roles)) < len(own)
    run = RunTexts(name="", texts=texts, roles=roles, clusters=None, sources=texts)
    seed = int(rng.integers(2**31))
    company = draw_company(run, np.zeros(len(texts), bool), seed=seed)
    inputs = Inputs(company=company)
    scores = score_texts(texts, [SCORES["codec"]], model, inputs=inputs).values
    (p_value,) = auc_p_values(scores, is_own, n=999, seed=seed)
    above = scores[:, 0] > 0
    share, other = float(above[is_own].mean()), float(above[~is_own].mean())
    return File(copies=copies, share=share, unseen=other, p_value=float(p_value))


def found_words(files: list[File]) -> str:
    """How many files rank first at 5 %, with an interval."""
    n_found = sum(one.p_value <= 0.05 for one in files)
    low, high = wilson_interval(n_found, len(files))
    return f"{n_found} of {len(files)} ({low:.1%} to {high:.1%})"


def main() -> int:
    """Command line of `python -m eval.codec`."""
    return run_study("codec", Codec, trains=True, compiles=True)


if __name__ == "__main__":
    sys.exit(main())
