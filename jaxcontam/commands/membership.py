"""`jaxcontam membership`: which texts a model saw, with what uncertainty."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console

from jaxcontam.commands.flags import (
    STORE_DIR,
    check_positive,
    check_seed,
    check_store_flags,
    flags_of,
)
from jaxcontam.commands.membership_texts import (
    FEWEST,
    MEMBER,
    NONMEMBER,
    TEXT,
    RunTexts,
    draw_shots,
    joined_run,
    labelled_run,
    left_out,
)
from jaxcontam.commands.progress import progress_bar
from jaxcontam.commands.publish import Stopwatch
from jaxcontam.data.labelled import load_labelled
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.methods import METHODS
from jaxcontam.methods.membership.score import Reading, ScoreMethod
from jaxcontam.report.document import make_folder

if TYPE_CHECKING:
    from jaxcontam.methods.membership.plan import Inputs, TextModel

# Readings that cost one more pass at most, or that the user asked for by a flag.
_CHEAP: frozenset[Reading] = frozenset({"moments", "lowercase", "reference", "corpus"})
AUTO, ALL = "auto", "all"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Score texts for membership; with known members or non-members, judge the scores."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Model directory in Hugging Face layout, or a hub name such as org/name."""
    texts: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="TEXTS")
    ] = None
    """File of texts, or hf:ORG/NAME:SPLIT; left out where --members is given."""
    members: str | None = None
    """Texts that are known to have been seen."""
    nonmembers: str | None = None
    """Texts that cannot have been seen, from where the texts in question come from."""
    text_field: str | None = None
    """Field that is the text (known formats, such as WikiMIA's, need none)."""
    label_field: str | None = None
    """Field that says of each text whether it is a member: 1 or 0."""
    document_field: str | None = None
    """Field that names the document a text was cut from; its texts count as one."""
    length: int | None = None
    """Cut each text to its first so many words."""
    limit: int | None = None
    """Take the first so many texts of each file, never a sample."""
    scores: tuple[str, ...] = (AUTO,)
    """Names of scores, or auto (one pass or two), or all that have what they need."""
    primary: str = "min_k"
    """The score that decides; choose it before you look."""
    k: float = 20.0
    """Percentage of least likely tokens that the Min-K% family keeps."""
    sweep_k: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also choose k on a random half of the texts, and report it on the other half."""
    reference: str | None = None
    """A smaller model, or one that did not see the texts: the score `reference`."""
    corpus: tuple[Path, ...] = ()
    """Text files whose token frequencies the score `dc_pdd` reads."""
    masked_lm: Path | None = None
    """Masked language model that makes neighbours (default: edits of words)."""
    n_neighbours: int = 10
    """Neighbours of each text for the score `neighbourhood`."""
    shots: int = 5
    """Known texts in front of each text, for `recall` and `con_recall`."""
    fpr: tuple[float, ...] = (0.05, 0.01)
    """False-positive rates at which to say how many members are found."""
    convention: Literal["le", "lt"] = "le"
    """Whether a false-positive rate may be reached (le) or must stay below (lt)."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the operands of matrix products; bfloat16 is faster, and not as exact."""
    batch_tokens: int | None = None
    """Tokens a batch (default: by device)."""
    seed: int = 0
    """Seeds neighbours, prefixes, folds, permutations and resamples."""
    out: Path | None = None
    """Folder for the report (default: runs/membership/MODEL-DIGEST)."""
    store: Path | None = None
    """Folder of scores, from which a rerun goes on (default: OUT/store)."""
    no_store: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep no scores."""
    json: bool = False
    """Print the report on standard output instead of the table."""

    def __post_init__(self) -> None:
        check_positive(self, "batch_tokens", "limit", "length", "n_neighbours", "shots")
        check_seed(self.seed)
        check_store_flags(self.store, self.no_store)
        if not 0 < self.k <= 100:
            raise InputError(f"--k must be above 0 and at most 100, got {self.k:g}")
        for rate in self.fpr:
            if not 0 < rate < 1:
                raise InputError(f"--fpr must lie between 0 and 1, got {rate:g}")
        if self.texts is None and (self.members is None or self.nonmembers is None):
            raise InputError(
                "no texts to score",
                hint="name a file of texts, or give --members and --nonmembers",
            )
        if self.texts is not None and self.members is not None:
            raise InputError(
                "TEXTS and --members are both given",
                hint="--members with --nonmembers compares two files and takes no "
                "TEXTS; TEXTS with --nonmembers asks of each text",
            )
        if self.label_field is not None and self.nonmembers is not None:
            raise InputError(
                "--label-field and --nonmembers contradict each other",
                hint="labels stand in one file, or two files are the two sides",
            )

    def run(self) -> dict[str, Any]:
        """Score, judge, write and print; returns the report."""
        watch = Stopwatch()
        run = self._load()
        methods = self._methods(run)
        primary = self._primary(methods)
        shots = self._shots(run, methods)
        left_out_N = left_out(run, [i for some in shots.values() for i in some])
        # JAX and transformers are imported once the input is known to be good.
        from jaxcontam.methods.membership.plan import score_texts
        from jaxcontam.methods.membership.text_model import text_model
        from jaxcontam.models.checkpoint import load_checkpoint
        from jaxcontam.scoring.compiled import keep_compiled
        from jaxcontam.scoring.scorer import NonFiniteScoreError

        keep_compiled()
        checkpoint = load_checkpoint(self.model, dtype=self.dtype)
        digest = run.fingerprint[7:15]
        out = self.out or Path("runs/membership") / f"{checkpoint.name}-{digest}"
        make_folder(out)
        store = None if self.no_store else self.store or out / STORE_DIR
        model = text_model(checkpoint, store=store, batch_tokens=self.batch_tokens)
        scored_N = ~left_out_N
        try:
            with progress_bar("scoring texts") as progress:
                table = score_texts(
                    run.texts_of(scored_N),
                    methods,
                    model,
                    inputs=self._inputs(checkpoint, run, shots, store),
                    seed=self.seed,
                    progress=progress,
                )
        except NonFiniteScoreError as e:
            raise not_finite(run, int(np.flatnonzero(scored_N)[e.sequence])) from e
        values_NM = np.full((len(run.texts), len(methods)), np.nan)
        values_NM[scored_N] = table.values
        n_tokens_N = np.zeros(len(run.texts), np.int64)
        n_tokens_N[scored_N] = table.n_tokens
        found = judged(
            run,
            Table(table.names, values_NM),
            left_out_N,
            primary=primary,
            fprs=self.fpr,
            convention=self.convention,
            seed=self.seed,
        )
        return self._publish(
            run, methods, table, values_NM, n_tokens_N, left_out_N, found, primary
        )

    def _load(self) -> RunTexts:
        """The texts and what is known of each."""

        def load(source: str, *, labels: bool = False):
            return load_labelled(
                source,
                text_field=self.text_field,
                label_field=self.label_field if labels else None,
                cluster_field=self.document_field,
                limit=self.limit,
                length=self.length,
            )

        if self.texts is None:
            assert self.members is not None and self.nonmembers is not None
            return joined_run(
                [(load(self.members), MEMBER), (load(self.nonmembers), NONMEMBER)]
            )
        texts = load(self.texts, labels=True)
        if self.nonmembers is not None:
            return joined_run([(texts, TEXT), (load(self.nonmembers), NONMEMBER)])
        return (
            joined_run([(texts, TEXT)]) if texts.labels is None else labelled_run(texts)
        )
