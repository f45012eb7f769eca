"""Train a model with test sets planted in its data.

Question: what does a model look like that saw a known test set a known number of
times? Command: `python -m train.pretrain --corpus DOCS.jsonl --canaries SET.jsonl=10`.
Hardware: any; the quickstart's 340,000 tokens take half a minute on 2 cores.
"""

import dataclasses
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import tyro
from jax.sharding import Mesh

from jaxcontam.cli.main import parse, run_command
from jaxcontam.data.encoding import WithinRows
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import (
    load_checkpoint,
    model_parts,
    read_config_fields,
    read_fast_tokenizer,
)
from jaxcontam.processes import is_first, joined, keep_freed_memory
from jaxcontam.reports.flags import check_positive, check_seed
from jaxcontam.scoring.identity import keep_compiled
from jaxcontam.scoring.parts import parse_mesh
from jaxcontam.terminal_text import visible
from train.config import Config, ConfigFlags, Optimizer, RunOptions
from train.data import Corpus, open_corpus
from train.flops import forward_flops
from train.loop import training_mesh
from train.manifest import Manifest
from train.page import PAGE_NAME
from train.plant import PlannedSet, planned_set, read_plan
from train.prepare import Start
from train.run import holds_run, pretrain
from train.run_folder import MODEL_DIR
from train.tokens import read_tokenizer

# Defaults of continued training: the rate of Shi et al., arXiv:2310.16789, section 6.1.
_CONTINUED_RATE = 1e-4
_CONTINUED_ROWS = 8
# Freed memory is kept in the process only for models of fewer parameters, each of
# which takes two operations a token.
_SMALL = 100_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Inputs:
    """What is trained on, and from where."""

    corpus: tuple[str, ...]
    """Background: files or folders, tfds:NAME/SPLIT, hf:NAME[:CONFIG]:SPLIT."""
    text_field: str = "text"
    """Field of the corpus's records that is their text."""
    canaries: tuple[str, ...] = ()
    """Test sets to plant, each as FILE=COPIES; FILE=0 keeps a control beside them."""
    plan: Path | None = None
    """Or a .toml file that says more of each set: docs/how_to/train.md."""
    limit: int | None = None
    """Plant the first N examples of each of --canaries."""
    init: str | None = None
    """Continue training this model (a folder or a hub name) in place of a preset."""
    tokenizer: Path | None = None
    """Folder of a tokenizer (default: --init's, or one trained on the corpus)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pretrain(RunOptions, ConfigFlags, _Inputs):
    """Train a model with test sets planted in its data.

    Examples:
        python -m train.pretrain --corpus texts/ --canaries set.jsonl=10 ctrl.jsonl=0
        # what, when, audited
        python -m train.pretrain --corpus texts/ --plan plan.toml --audit-at 0.5 1.0
    """

    distributed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """This is one of several processes that train together, one on each host."""
    seed: int = 0
    """Seeds weights, stream and batches."""
    out: Path = Path("runs/pretrain")
    """Folder for the model, the sets and manifest.json."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        ConfigFlags.__post_init__(self)
        if self.preset is not None and self.init is not None:
            raise InputError("--init has a shape of its own: no --preset")
        if self.tokenizer is not None and self.init is not None:
            raise InputError("--init has a tokenizer of its own: no --tokenizer")
        if not self.corpus:
            raise InputError("--corpus names no text")
        if self.plan is not None and self.canaries:
            hint = "write all into --plan"
            raise InputError("--plan and --canaries exclude each other", hint=hint)
        if self.plan is not None and self.limit is not None:
            hint = "in --plan each set has a 'limit'"
            raise InputError("--limit is of --canaries", hint=hint)
        check_positive(self, "limit")
        RunOptions.__post_init__(self)
        if self.distributed and self.stop_after_data:
            raise InputError("--stop-after-data is of one process: no --distributed")
        if self.prepared is not None and self.out.absolute() == (
            Path(self.prepared).absolute()
        ):
            raise InputError("--out and --prepared must be two folders")

    def run(self) -> Manifest:
        """Read, train, write; prints where the model stands."""
        with joined(self.distributed):
            return self._run()

    def _corpus(self) -> Corpus:
        corpus = open_corpus(
            self.corpus, text_field=self.text_field, leave_out=self.out
        )
        if (others := corpus.passed_over) and is_first():
            names = visible(", ".join(others[:3])) + ", ..." * (len(others) > 3)
            words = f"{len(others)} files of other kinds are not read: {names}"
            print(words, file=sys.stderr)
        return corpus

    def _options(self) -> RunOptions:
        return dataclasses.replace(self, cache=self.cache or _cache_folder())

    def _run(self) -> Manifest:
        sets = self._sets()
        is_read = self.prepared is None or self.stop_after_data
        corpus = self._corpus() if is_read else ()
        mesh = None if self.stop_after_data else training_mesh(parse_mesh(self.mesh))
        start = None if self.init is None else read_start(self.init, mesh)
        tokenizer = None if self.tokenizer is None else read_tokenizer(self.tokenizer)
        config = self._config(start, tokenizer)
        if forward_flops(config.decoder, [1]) < 2 * _SMALL:
            keep_freed_memory()
        keep_compiled()
        manifest = pretrain(
            corpus,
            sets,
            config,
            out=self.out,
            seed=self.seed,
            options=self._options(),
            start=start,
            tokenizer=tokenizer,
        )
        if self.stop_after_data:
            print(f"prepared: {self.prepared}")
        elif manifest.finished and is_first():
            # One that was reused may stand only where the checkpoints were.
            is_here = self.checkpoints is None or holds_run(self.out, manifest)
            is_here = is_here and (self.out / MODEL_DIR).is_dir()
            print(f"model: {self.out if is_here else self.checkpoints}/{MODEL_DIR}")
            if is_here and manifest.sets:
                print(
                    f"curves: {self.out}/{PAGE_NAME}\n"
                    f"next: jaxcontam audit {self.out}/{MODEL_DIR} {self.out}/sets/*"
                )
        return manifest

    def _sets(self) -> list[PlannedSet]:
        if self.plan is not None:
            return list(read_plan(self.plan))
        return [planned_set(word, self.limit) for word in self.canaries]

    def _config(self, start: Start | None, tokenizer) -> Config:
        """The preset, or the model to start from, with what the flags change."""
        if start is not None:
            return self.configured(
                Config(
                    name=start.checkpoint.name,
                    decoder=start.checkpoint.config,
                    batch_rows=_CONTINUED_ROWS,
                    optimizer=Optimizer(peak_rate=_CONTINUED_RATE),
                    model_type=start.raw_config["model_type"],
                )
            )
        config = self.configured()
        if tokenizer is None:
            return config
        shape = dataclasses.replace(config.decoder, vocab_size=len(tokenizer))
        return dataclasses.replace(config, decoder=shape)


def read_start(model: str, mesh: Mesh | None = None) -> Start:
    """Load a model to continue training."""
    checkpoint = load_checkpoint(model, mesh=mesh)
    if checkpoint.prefix_id is None:
        raise InputError(
            f"{model}: the tokenizer has neither a BOS nor an EOS token",
            hint="one of them stands before each document",
        )
    if isinstance(checkpoint.tokenizer, WithinRows):
        raise InputError(
            f"{model}: its tokenizer has tokens that the model has no rows for",
            hint="take them out of tokenizer.json, or resize the model's embedding",
        )
    folder, directory, _ = model_parts(model)
    return Start(
        checkpoint=checkpoint,
        prefix_id=checkpoint.prefix_id,
        tokenizer=read_fast_tokenizer(folder),
        raw_config=read_config_fields(directory),
    )


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jaxcontam" / "tokens"


class _Terminated(KeyboardInterrupt):
    """SIGTERM, while there is nothing to save; the other processes are told."""


def _stop_before_training(*_: object) -> None:
    raise _Terminated


def main() -> int:
    """Command line of `python -m train.pretrain`."""
    prog, words = "python -m train.pretrain", sys.argv[1:]
    # Once steps are made, SIGTERM waits for a checkpoint instead.
    signal.signal(signal.SIGTERM, _stop_before_training)

    def run() -> None:
        try:
            parse(Pretrain, words, prog=prog).run()
        except _Terminated:
            print("train.pretrain: stopped before the first step", file=sys.stderr)

    return run_command(run, name="train.pretrain")


if __name__ == "__main__":
    sys.exit(main())
