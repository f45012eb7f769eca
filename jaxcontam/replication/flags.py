"""Flags of `jaxcontam replicate`, and the design of its questions.

Nothing slow is imported, so that --help and a word that does not parse
are answered at once; a command imports its work when it runs.
"""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from jaxcontam.arguments import NamedFields, check_fields, with_settings
from jaxcontam.data.templates import RecordText
from jaxcontam.errors import InputError, check_names
from jaxcontam.reports.flags import (
    DtypeFlags,
    ReportFlags,
    SpendingFlags,
    check_positive,
    flag_of,
    in_order,
)
from jaxcontam.scoring.api.address import PREFIX, parse_api

Task = Literal["classification", "nli", "summary", "one-sentence", "plain"]
"""Kind of instances; `plain` shows the first piece alone, for base models."""

_LOCAL = "local"
# Flags of the run itself; all others say how a model is asked.
_WITH_RECORDED = {
    *("recorded", "control", "fields", "compare", "judge", "judge_prompt"),
    *("concurrency", "budget", "price", "retry_refused", "seed", "out", "json"),
}
CDD, BLEURT, EMBEDDING = "cdd", "bleurt", "embedding"
MEASURES = (BLEURT, EMBEDDING)
_CDD_SAMPLES, _SPLIT = 20, "test"
_NAME_AND_SPLIT = re.compile(r"(.*):([\w.-]+)")
OPTION, PATHS = "ts_guessing_option", "file_path"


# No slots: the command joins these fields to its own.
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicationDesign(NamedFields, RecordText):
    """Questions about a partition; the fields are flags of `jaxcontam replicate`.

    Raises:
        InputError: If fields exclude each other or are out of range; names the flag.
    """

    roles = ("first", "second", "label", "labels", "document")
    dataset_name: str | None = None
    """Name of the dataset and its partition in the guided instruction, NAME:SPLIT
    (default: the file's name, and test)."""
    task: Task = "classification"
    """Kind of instances; plain shows only a first piece, for base models."""
    text: str | None = None
    """Field that is the text of an instance, or a template of fields in braces
    (default: known names; nli has two)."""
    fields: tuple[str, ...] = ()
    """Names of fields, if not known ones: first=NAME and second=NAME, the part of a
    pair that the model is shown and the one it must write; label=NAME, which the
    instructions then name, and labels=A,B, names of labels that are numbers, from 0 on;
    document=NAME, the source that instances share: the control is compared by whole
    sources (default: instances are assumed to be independent)."""
    sample: int = 50
    """Instances, drawn at random; the paper has 10."""
    control: Path | None = None
    """Instances that cannot have been seen, as easy to guess and of the same sources
    and years; with --recorded, their completions. Without a control the verdict is at
    most suspected."""
    prompts: Path | None = None
    """Other instructions: a .toml or .json file with guided and general templates, and
    stop, texts that end a completion (plain: a line end, if no second piece has
    one)."""
    compare: tuple[str, ...] = ()
    """Further methods, separated by blanks or commas: first_instances, cdd:N (N samples
    of each instance, else 20), ts_guessing_word, ts_guessing_option, file_path; and
    measures of overlap, bleurt:FOLDER (docs/how_to/replicate.md) and embedding:MODEL
    (its mean hidden states)."""
    new_tokens: int | None = None
    """Most tokens of a completion; a small context leaves fewer (default: 500; plain,
    of a model of one's own, twice the longest second piece and 32 if that is less)."""
    seed: int = 0
    """Seeds every draw: folds, resamples, samples."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "sample", "new_tokens")
        _ = self.label_names
        if (self.named("first") is None) != (self.named("second") is None):
            raise InputError("--fields: first= and second= go together")
        if self.settings:
            self._check_settings()

    def _check_settings(self) -> None:
        from jaxcontam.replication.hidden import COMPARISONS

        for name, setting in self.settings.items():
            check_names("method of --compare", (name,), (*COMPARISONS, *MEASURES))
            if name in MEASURES and not setting:
                what = "FOLDER" if name == BLEURT else "MODEL"
                raise InputError(f"--compare {name}: write {name}:{what}")
            is_number = setting is None or (name == CDD and setting.isdecimal())
            if name in COMPARISONS and not (is_number and int(setting or 1) > 0):
                takes = "a number, at least 1" if name == CDD else "nothing after it"
                raise InputError(f"--compare {name}:{setting}: {name} takes {takes}")

    @property
    def settings(self) -> dict[str, str | None]:
        """Methods and measures of --compare, and what stands after their names."""
        return dict(with_settings(self.compare, flag="--compare"))

    @property
    def comparisons(self) -> tuple[str, ...]:
        """Methods of --compare."""
        return tuple(name for name in self.settings if name not in MEASURES)

    @property
    def cdd_samples(self) -> int:
        """Samples of each instance for cdd."""
        return int(self.settings.get(CDD) or _CDD_SAMPLES)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of labels that are numbers."""
        named = self.named("labels")
        names = () if named is None else tuple(map(str.strip, named.split(",")))
        if not all(names):
            raise InputError(f"--fields labels={named}: a name is empty")
        return names

    @property
    def names(self) -> tuple[str | None, str]:
        """Names of dataset and partition in the instructions."""
        if self.dataset_name is None:
            return None, _SPLIT
        # A name may hold a colon itself: "hf:org/name", "SuperGLUE: RTE".
        found = _NAME_AND_SPLIT.fullmatch(self.dataset_name)
        if found is None:
            return self.dataset_name, _SPLIT
        return found[1] or None, found[2]


def check_reference(design: ReplicationDesign) -> None:
    """Refuse a reference that nothing is compared with."""
    if design.control is None:
        raise InputError(
            "--reference needs --control",
            hint="give a control: the reference shows how easy the benchmark is to "
            "guess compared with it",
        )


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Replicate(SpendingFlags, DtypeFlags, ReportFlags, ReplicationDesign):
    """Ask a model for the rest of instances, and see whether it copies them.

    Examples:
        jaxcontam replicate MODEL_DIR rte.jsonl --task nli --dataset-name RTE:dev
        # the price
        jaxcontam replicate api:https://host/v1#NAME ag_news.csv --dry-run
        # for more than suspected
        jaxcontam replicate MODEL_DIR old.txt --control new.txt --reference OLD_DIR
        jaxcontam replicate MODEL_DIR lines.txt --task plain  # a base model
        # judge completions made elsewhere
        jaxcontam replicate --recorded completions.csv
    """

    model: Positional[str | None] = None
    """Model directory, hub name, or api:URL#NAME; left out with --recorded."""
    benchmark: Positional[Path | None] = None
    """File of the partition: .jsonl, .json, .csv, .tsv or .txt."""
    reference: str | None = None
    """Model that has seen neither BENCHMARK nor --control, such as an older one or the
    base (as MODEL): it gets the same prompts. Without one copies are at most
    suspected."""
    recorded: Path | None = None
    """Judge completions made elsewhere: a .csv with a row per instance."""
    judge: tuple[str, ...] = (_LOCAL,)
    """local; in addition a chat model api:URL#NAME, which then decides; and a sheet of
    people's labels, annotate.csv of an earlier run, to report agreement."""
    judge_prompt: Path | None = None
    """Other words for the chat model that judges: a .txt file with {reference} and
    {candidate}."""
    retry_refused: bool = False
    """Repeat requests that a server refused in an earlier run."""
    dry_run: bool = False
    """Print the tokens and the cost of the run; send nothing."""

    def __post_init__(self) -> None:
        ReplicationDesign.__post_init__(self)
        self.check_spending()
        super().__post_init__()
        if self.recorded is not None:
            self._check_recorded()
        elif self.model is None or self.benchmark is None:
            raise InputError(
                "no model and benchmark", hint="name both, or give --recorded FILE.csv"
            )
        elif self.reference is not None:
            check_reference(self)
        if self.chat_judge is not None:
            parse_api(self.chat_judge, flag="--judge")
        elif self.judge_prompt is not None:
            raise InputError(
                "--judge-prompt needs a chat model",
                hint="name it: --judge api:URL#NAME",
            )
        _ = self.sheet
        if self.judge_prompt is not None:
            from jaxcontam.replication.judges import load_judge_prompt

            load_judge_prompt(self.judge_prompt)
        if self.task == "plain" and self.measures:
            raise InputError(
                f"--compare {self.measures[0]} compares two instructions, and --task "
                "plain has one"
            )
        folder = self.settings.get(BLEURT)
        if folder is not None and not Path(folder).is_dir():
            raise InputError(
                f"--compare bleurt:{folder}: no such folder",
                hint="see docs/how_to/replicate.md for how to make one",
            )

    @property
    def measures(self) -> tuple[str, ...]:
        """Measures of --compare."""
        return tuple(name for name in self.settings if name in MEASURES)

    @property
    def chat_judge(self) -> str | None:
        """The chat model that judges."""
        return _one([word for word in self.judge if word.startswith(PREFIX)])

    @property
    def sheet(self) -> Path | None:
        """People's labels."""
        others = [
            word
            for word in self.judge
            if word != _LOCAL and not word.startswith(PREFIX)
        ]
        for word in others:
            if not (word.lower().endswith(".csv") or Path(word).exists()):
                raise InputError(
                    "--judge takes local, api:URL#NAME and a sheet of labels .csv, got "
                    f"{word!r}"
                )
        sheet = _one(others)
        return None if sheet is None else Path(sheet)

    def _check_recorded(self) -> None:
        if self.model is not None:
            raise InputError(
                "--recorded uses no model", hint="leave out MODEL and BENCHMARK"
            )
        for field in dataclasses.fields(self):
            is_given = getattr(self, field.name) != field.default
            if is_given and field.name not in _WITH_RECORDED:
                beside = (
                    "put completions of a reference into the same file, as "
                    "generated_reference_completion"
                )
                raise InputError(
                    f"{flag_of(field.name)} does not go with --recorded",
                    hint=beside if field.name == "reference" else "",
                )
        for name in self.comparisons:
            raise InputError(f"--compare {name} does not go with --recorded")
        for word in self.fields:
            if not word.startswith("document="):
                raise InputError(f"--fields {word} does not go with --recorded")

    def run(self) -> int:
        """Ask, judge, write, print; 3 without a verdict, or if a server refused."""
        from jaxcontam.replication.command import replicate

        return replicate(self)


def _one(words: Sequence[str]) -> str | None:
    """The one judge of a kind."""
    if len(words) > 1:
        raise InputError(f"--judge takes one of a kind, got {' and '.join(words)}")
    return next(iter(words), None)
