"""Flags of commands without a room of their own.

Nothing slow is imported, so that --help and a word that does not parse
are answered at once; a command imports its work when it runs.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from jaxcontam.errors import InputError
from jaxcontam.reports.flags import (
    FirstTextsFlags,
    ScoringFlags,
    in_order,
)


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Score(ScoringFlags, FirstTextsFlags):
    """Score every token of each text: log-probability, and its mean and variance.

    Examples:
        jaxcontam score MODEL_DIR texts.txt --out scores.jsonl  # a row per text
    """

    texts: Positional[Path]
    """File of texts: .jsonl, .json, .csv, .tsv or .txt; by default the raw line."""
    out: Path
    """File to write, one JSON row per text."""

    def run(self) -> int:
        """Score and write; returns 0."""
        from jaxcontam.cli.score import score

        return score(self)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Recompute every p-value and verdict of a report; exit 3 if one differs.

    Pre-tests of an audit run again if its files are available.

    Examples:
        # every number again, without the model
        jaxcontam verify FOLDER
        # also score 100 random rows of each test again
        jaxcontam verify FOLDER --rescore 100 --model MODEL_DIR
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder with report.json, and orders.npz or texts.jsonl."""

    benchmark: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE")] = ()
    """Files that were audited (default: where the report's command found them)."""
    rescore: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Random rows of each test of an audit that --model scores again."""
    model: str | None = None
    """The model of the report, or its reference, for --rescore."""

    def __post_init__(self) -> None:
        if self.rescore < 0 or (self.rescore > 0) != (self.model is not None):
            raise InputError(
                "--rescore and --model go together",
                hint="--rescore 20 --model MODEL scores 20 rows of each test again",
            )

    def run(self) -> int:
        """Print what was checked; 0 if all agrees, 3 if anything does not."""
        from jaxcontam.cli.reports import verify

        return verify(self)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Write report.html and results.csv again, from report.json and what it names.

    Examples:
        jaxcontam report runs/audit/FOLDER
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder of a finished run."""

    def run(self) -> None:
        """Write page and table beside the report."""
        from jaxcontam.cli.reports import render

        return render(self)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Annotate:
    """Add verdicts of finished audits to a file of benchmark scores.

    Names must be equal: another revision, adapter or folder is another model.

    Examples:
        # results of lm_eval; writes results.annotated.json
        jaxcontam annotate results.json --audit runs/audit/pythia-boolq-1a2b3c4d
        # a leaderboard that calls the model, or the benchmark, something else
        jaxcontam annotate board.csv --audit runs --same Pythia=pythia-160m
    """

    results: tyro.conf.Positional[Path]
    """Results of lm_eval, a log of Inspect, a record of Every Eval Ever, or a table."""
    audit: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR...")]
    """Folders of finished audits, or folders that hold such folders."""
    same: Annotated[tuple[str, ...], tyro.conf.arg(metavar="A=B")] = ()
    """A of the results is B of the audits: a model, or a benchmark."""
    out: Path | None = None
    """New file (default: RESULTS.annotated.json, or with the suffix of RESULTS)."""

    def run(self) -> None:
        """Match, write, and say what matched and what did not."""
        from jaxcontam.cli.annotate import annotate

        return annotate(self)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Methods:
    """Show what each method gives and costs, or all about some of them.

    Examples:
        jaxcontam methods  # every method, in a line or two
        jaxcontam methods adjacency min_k  # formula, null, source, example
    """

    name: Positional[tuple[str, ...]] = ()
    """Methods to describe in full (default: all in short)."""

    def run(self) -> None:
        """Print the tests, then the membership scores, then what `replicate` does."""
        from jaxcontam.cli.methods import show

        return show(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doctor:
    """Say what is missing here, and how to get it; looks at a model and files, too.

    Examples:
        jaxcontam doctor  # this machine
        jaxcontam doctor benchmark.jsonl  # can its order be tested?
        jaxcontam doctor MODEL_DIR a.jsonl b.jsonl  # all that is to be audited
    """

    model: Positional[str | None] = None
    """Model directory or .gguf file that is to be audited: is it complete? May be
    left out."""
    benchmark: Positional[tuple[str, ...]] = ()
    """Files that it is to be audited on: does the order of each pass the checks?"""

    def run(self) -> int:
        """Print a line a check; 0, or 2 if something that is needed is missing."""
        from jaxcontam.cli.doctor import examine

        return examine(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Convert:
    """Write pickled weights as safetensors; code that a pickle may hold never runs.

    Examples:
        jaxcontam convert MODEL_DIR NEW_DIR
        # from the hub
        jaxcontam convert yonatano/contam-1.4b contam-1.4b
    """

    model: Positional[str]
    """Folder with pytorch_model.bin, or name on the hub."""
    out: Positional[Path]
    """New folder, to be named instead of MODEL; config and tokenizer are copied too."""

    def run(self) -> None:
        """Read pickles with nothing but tensors allowed, beside the new folder."""
        from jaxcontam.cli.convert import convert

        return convert(self)
