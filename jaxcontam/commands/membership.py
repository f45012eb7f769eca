"""`jaxcontam membership`: which texts a model saw, with what uncertainty."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

from jaxcontam.commands.api_flags import runs_here
from jaxcontam.commands.device_flags import DeviceFlags, check_device_flags, open_for
from jaxcontam.commands.flags import (
    check_positive,
    check_seed,
    check_store_flags,
    flags_of,
    store_of,
)
from jaxcontam.commands.membership_judged import Judged, Table, judged
from jaxcontam.commands.membership_published import publish_membership
from jaxcontam.commands.membership_scores import (
    AUTO,
    choose_scores,
    counted_tokens,
    left_out_for_moments,
    primary_name,
    print_dry_run,
    score_names,
)
from jaxcontam.commands.membership_texts import (
    MEMBER,
    NONMEMBER,
    TEXT,
    RunTexts,
    check_sides,
    draw_shots,
    joined_run,
    labelled_run,
    left_out,
)
from jaxcontam.commands.progress import progress_bar
from jaxcontam.commands.publish import Stopwatch
from jaxcontam.data.labelled import LabelledTexts, load_labelled
from jaxcontam.errors import InputError
from jaxcontam.methods.membership.score import Reading, ScoreMethod
from jaxcontam.report.document import make_folder

if TYPE_CHECKING:
    from jaxcontam.methods.membership.plan import Inputs
    from jaxcontam.methods.membership.text_model import TextModel
    from jaxcontam.scoring.opened import OpenModel

_PREFIXES: tuple[tuple[Reading, str], ...] = (
    ("nonmember_prefix", NONMEMBER),
    ("member_prefix", MEMBER),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Membership(DeviceFlags):
    """Say which texts a model saw, by scores that are judged against known texts."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """Model directory in Hugging Face layout, hub name org/name, or api:URL#NAME."""
    texts: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="TEXTS")
    ] = None
    """File of texts, or hf:ORG/NAME:SPLIT; left out where --members is given."""
    members: str | None = None
    """Texts that are known to have been seen."""
    nonmembers: str | None = None
    """Texts that cannot have been seen, of the same kind."""
    template: str | None = None
    r"""Text of a record, such as "Question: {question}\nAnswer: {answer}"."""
    text_field: str | None = None
    """Field that is the text (default: input, snippet or text); .txt has lines."""
    label_field: str | None = None
    """Field of 1 for members, 0 for others (default: label beside input or snippet)."""
    document_field: str | None = None
    """Field that names the document a text was cut from; its texts count as one."""
    length: int | None = None
    """Cut each text to its first so many words."""
    limit: int | None = None
    """Take the first so many texts of each file, never a sample."""
    scores: tuple[str, ...] = (AUTO,)
    """Names of scores, blanks or commas between; or auto (one pass or two), or all."""
    primary: str | None = None
    """The score that decides (default: min_k, or the first); choose it beforehand."""
    k: float = 20.0
    """Percentage of least likely tokens that the Min-K% family keeps."""
    sweep_k: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also choose k of 10 to 50 on a random half of the texts, judged on the other."""
    reference: str | None = None
    """Model that saw neither side; without one the verdict is at most suspected."""
    corpus: tuple[Path, ...] = ()
    """Text files whose token frequencies the score `dc_pdd` reads."""
    masked_lm: Path | None = None
    """Folder of a masked language model for neighbours (default: edits of words)."""
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
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Say which scores from how many tokens, and how long that takes; score nothing."""
    json: bool = False
    """Print the report on standard output instead of the table."""

    def __post_init__(self) -> None:
        check_positive(self, "batch_tokens", "limit", "length", "n_neighbours", "shots")
        check_seed(self.seed)
        check_store_flags(self.store, self.no_store)
        check_device_flags(self, self.model)
        if not 0 < self.k <= 100:
            raise InputError(f"--k must be above 0 and at most 100, got {self.k:g}")
        if len(set(self.fpr)) < len(self.fpr):
            raise InputError(f"--fpr names a rate twice {self.fpr}")
        if self.masked_lm is not None and not self.masked_lm.is_dir():
            raise InputError(
                f"--masked-lm {self.masked_lm}: no such folder",
                hint="a folder with config.json, model.safetensors and tokenizer.json",
            )
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

    def run(self) -> dict[str, Any] | None:
        """Score, judge, write and print; returns the report, or None of a dry run."""
        watch = Stopwatch()
        run = self._load()
        check_sides(run, np.zeros(len(run.texts), bool))
        methods = choose_scores(
            score_names(self.scores),
            self._available(run),
            fraction=self.k / 100,
            sweep=self.sweep_k,
        )
        primary = primary_name(self.primary, methods, fraction=self.k / 100)
        if self.sweep_k and not (
            run.with_role(MEMBER).any() and run.with_role(NONMEMBER).any()
        ):
            raise InputError(
                "--sweep-k needs members and non-members",
                hint="give labels, or --members and --nonmembers",
            )
        shots: dict[Reading, np.ndarray] = {
            reading: draw_shots(run, role, self.shots, seed=self.seed)
            for reading, role in _PREFIXES
            if any(reading in method.reads for method in methods)
        }
        # JAX and transformers are imported once the input is known to be good.
        from jaxcontam.methods.membership.plan import score_texts
        from jaxcontam.methods.membership.text_model import text_model_of
        from jaxcontam.scoring.scorer import NonFiniteScoreError

        opened = open_for(self, self.model, plan_only=self.dry_run)
        digest = run.fingerprint[7:15]
        out = self.out or Path("runs/membership") / f"{opened.name}-{digest}"
        make_folder(out)
        model = text_model_of(
            opened, store=store_of(self, out, opened), batch_tokens=self.batch_tokens
        )
        methods, shots, notes = self._fitted(run, methods, shots, model)
        notes += left_out_for_moments(score_names(self.scores), opened)
        left_out_N = left_out(run, [int(i) for some in shots.values() for i in some])
        check_sides(run, left_out_N)
        scored_N = ~left_out_N
        inputs = self._inputs(
            opened,
            {
                reading: tuple(run.texts[i] for i in some)
                for reading, some in shots.items()
            },
            out=out,
        )
        texts = run.texts_of(scored_N)
        if self.dry_run:
            print_dry_run(
                texts, methods, model, inputs, self.seed, self.api_options.limits
            )
            return None
        try:
            with progress_bar("scoring texts") as progress:
                table = score_texts(
                    texts,
                    methods,
                    model,
                    inputs=inputs,
                    seed=self.seed,
                    progress=progress,
                )
        except NonFiniteScoreError as e:
            i = int(np.flatnonzero(scored_N)[e.sequence])
            raise InputError(
                f"{run.sources[i]}: text {run.number_of(i)}: a score is not finite",
                hint="check the checkpoint: its weights may hold NaN or be truncated",
            ) from e
        pool_N = run.with_role(NONMEMBER) & scored_N
        if pool_N.any() and not table.n_tokens[pool_N[scored_N]].any():
            raise InputError(
                f"{self.nonmembers or self.texts}: no non-member has a token to score",
                hint="give texts that are not empty",
            )
        n_tokens_N = np.zeros(len(run.texts), np.int64)
        n_tokens_N[scored_N] = table.n_tokens
        whole = Table(table.names, table.values, table.reference).among(scored_N)
        found: Judged = judged(
            run,
            whole,
            left_out_N,
            primary=primary,
            fprs=self.fpr,
            convention=self.convention,
            seed=self.seed,
        )
        return publish_membership(
            run,
            whole,
            dataclasses.replace(found, warnings=notes + found.warnings),
            methods=methods,
            primary=primary,
            fprs=self.fpr,
            convention=self.convention,
            left_out_N=left_out_N,
            n_tokens_N=n_tokens_N,
            tokens_scored=table.tokens_scored,
            cached_tokens=table.n_cached,
            command=("membership", *self._positionals(), *flags_of(self)),
            seed=self.seed,
            watch=watch,
            model=opened,
            out=out,
            as_json=self.json,
        )

    def _fitted(
        self,
        run: RunTexts,
        methods: list[ScoreMethod],
        shots: dict[Reading, np.ndarray],
        model: "TextModel",
    ) -> tuple[list[ScoreMethod], dict[Reading, np.ndarray], tuple[str, ...]]:
        """Shots that fit before the longest text; `all` goes without where none does.

        Returns:
            Scores, shots, and what the reader should know of them.
        """
        from jaxcontam.methods.membership.prefix import fitting_shots

        out_N = left_out(run, [int(i) for some in shots.values() for i in some])
        notes = []
        for reading, some in list(shots.items()):
            fits = fitting_shots(
                [run.texts[i] for i in some], run.texts_of(~out_N), model
            )
            names = [method.name for method in methods if reading in method.reads]
            if (
                not fits
                and not set(names) & set(score_names(self.scores))
                and self.primary not in names
            ):
                methods = [method for method in methods if method.name not in names]
                del shots[reading]
                notes.append(
                    f"{' and '.join(names)} left out: no known text fits the model's "
                    "context before the longest text; --length would cut it"
                )
            elif 0 < len(fits) < len(some):
                shots[reading] = some[fits]
                notes.append(
                    f"{len(fits)} of {len(some)} shots fit before the longest text for "
                    f"{' and '.join(names)}"
                )
        return methods, shots, tuple(notes)

    def _positionals(self) -> list[str]:
        return [self.model] if self.texts is None else [self.model, self.texts]

    def _available(self, run: RunTexts) -> set[Reading]:
        """What scores can read in this run."""
        found: set[Reading] = {"lowercase", "neighbours"}
        if runs_here(self.model):
            found |= {"moments", "gradients"}
        if self.reference is not None:
            found.add("reference")
        if self.corpus:
            found.add("corpus")
        for reading, role in _PREFIXES:
            if run.with_role(role).any():
                found.add(reading)
        return found

    def _inputs(
        self,
        opened: "OpenModel",
        prefixes: dict[Reading, tuple[str, ...]],
        *,
        out: Path,
    ) -> "Inputs":
        """What scores need beside the model and the texts."""
        from jaxcontam.methods.membership.neighbours import edited
        from jaxcontam.methods.membership.plan import Inputs
        from jaxcontam.methods.membership.text_model import text_model_of

        neighbours, reference = edited, None
        if self.reference is not None:
            other = open_for(
                self, self.reference, plan_only=self.dry_run, beside=opened
            )
            reference = text_model_of(
                other, store=store_of(self, out, other), batch_tokens=self.batch_tokens
            )
        if self.masked_lm is not None:
            from jaxcontam.models.masked import MaskedModel

            neighbours = MaskedModel.load(self.masked_lm).replaced
        return Inputs(
            reference=reference,
            nonmember_prefix=prefixes.get("nonmember_prefix", ()),
            member_prefix=prefixes.get("member_prefix", ()),
            corpus_counts=counted_tokens(self.corpus, opened, out)
            if self.corpus
            else None,
            neighbours=neighbours,
            n_neighbours=self.n_neighbours,
        )

    def _load(self) -> RunTexts:
        """The texts and what is known of each.

        Raises:
            InputError: If labels name one side only, or two files differ in the field
                of the text.
        """
        source = self.members if self.texts is None else self.texts
        assert source is not None
        if self.nonmembers is not None:
            role = MEMBER if self.texts is None else TEXT
            return joined_run(
                [
                    (self._read(source, with_labels=False), role),
                    (self._read(self.nonmembers, with_labels=False), NONMEMBER),
                ],
                length=self.length,
            )
        texts = self._read(source, with_labels=True)
        if texts.labels is None:
            return joined_run([(texts, TEXT)], length=self.length)
        return labelled_run(texts, length=self.length)

    def _read(self, source: str, *, with_labels: bool) -> LabelledTexts:
        return load_labelled(
            source,
            template=self.template,
            text_field=self.text_field,
            label_field=self.label_field if with_labels else None,
            cluster_field=self.document_field,
            limit=self.limit,
            length=self.length,
            with_labels=with_labels,
        )
