"""The methods of `jaxcontam replicate`, one row each: a table for readers."""

import dataclasses
from collections.abc import Callable, Mapping

from jaxcontam.progress import Progress
from jaxcontam.replication.cdd import cdd
from jaxcontam.replication.file_path import file_path
from jaxcontam.replication.first_instances import first_instances
from jaxcontam.replication.questions import ComparisonInputs, Found
from jaxcontam.replication.ts_guessing import ts_guessing_option, ts_guessing_word
from jaxcontam.reports.methods import MethodRow, Words, words_of
from jaxcontam.reports.page import named_methods
from jaxcontam.reports.report import Report


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationMethod(MethodRow):
    """A method of `replicate`: what it asks, gives and sees.

    `departure` says how it differs from the authors' code; empty where it does not.
    """

    label: str = ""
    gives: str
    needs: str = "completions"
    departure: str = ""


_GOLCHIN = "Golchin and Surdeanu 2023"
_BOTH = "2k answers, shared by all overlaps"

REPLICATION_METHODS = (
    ReplicationMethod(
        name="judge_local",
        label="local judge",
        gives="verdict: 1 exact copy, or 2 near-exact ones of 10 (5 of 50); without a "
        "control and a reference model at most suspected",
        cost="k answers, and k of a control; both of a reference",
        finds="copies word for word, or nearly; texts known from elsewhere, too, which "
        "a control shows",
        source=f"the rule: {_GOLCHIN}, algorithm 2; the judge is ours",
        departure="no model judges: equality, or ROUGE-L and content-word precision; "
        "pieces that repeat or count on from the first piece are left out",
    ),
    ReplicationMethod(
        name="judge_llm",
        label="chat model",
        gives="verdict by the same rule, in place of judge_local's",
        needs="completions, and a chat model (--judge api:URL#NAME)",
        cost="k answers, and k of the judge",
        finds="as judge_local; copies in other words, too",
        source=f"{_GOLCHIN}, algorithm 2 and figure 2",
        departure="examples of our own; answers that do not parse are counted",
    ),
    ReplicationMethod(
        name="judge_human",
        label="people",
        gives="agreement of the judges with people",
        needs="annotate.csv filled in (--annotated)",
        cost="none",
        finds="what people call a copy",
        source=_GOLCHIN,
    ),
    ReplicationMethod(
        name="rouge_l_sign_flip",
        gives="p-value, exact",
        cost=_BOTH,
        finds="that naming the partition helps, whatever the reason",
        source=f"{_GOLCHIN}, algorithm 1; Fisher 1935 for the test",
        departure="exact sign flips of paired differences in place of a bootstrap; "
        "references not mostly of Latin letters are left out",
    ),
    ReplicationMethod(
        name="rouge_l_paired_bootstrap",
        gives="p-value, asymptotic: rejects too often at k = 10",
        cost=_BOTH,
        finds="the same",
        source=f"{_GOLCHIN}, algorithm 1, as their published p-values were made",
    ),
    ReplicationMethod(
        name="rouge_l_unpaired_bootstrap",
        gives="p-value, asymptotic: too careful where instances differ",
        cost=_BOTH,
        finds="the same",
        source=f"{_GOLCHIN}, algorithm 1, as their released code has it",
    ),
    ReplicationMethod(
        name="bleurt",
        gives="the three tests above on BLEURT, such as bleurt_sign_flip",
        needs="completions, and a checkpoint (--bleurt DIR)",
        cost=_BOTH,
        finds="likeness of meaning, too",
        source=f"{_GOLCHIN}; Sellam et al. 2020",
    ),
    ReplicationMethod(
        name="embedding",
        gives="the three tests above on the cosine of embeddings",
        needs="completions, and a model (--embedding-model)",
        cost=_BOTH,
        finds="likeness of subject",
        source="ours",
    ),
    ReplicationMethod(
        name="first_instances",
        label="first instances of the split",
        gives="copied, suspicious or nothing found; at most suspected",
        needs="completions (--compare first_instances)",
        cost="1 answer",
        finds="the first rows of a split; often suspicious of everything",
        source="Sainz et al. 2023",
        departure="a fixed rule in place of a reader's judgement",
    ),
    ReplicationMethod(
        name="cdd",
        label="peaked samples (CDD)",
        gives="rate of instances whose samples are peaked",
        needs="completions, sampled (--compare cdd)",
        cost="21k answers (--cdd-samples)",
        finds="texts that come out the same at temperature 0.8; short or formal "
        "answers do that, too",
        source="Dong et al. 2024",
        departure="shares of samples, on tokens, as the paper; ports count characters",
    ),
    ReplicationMethod(
        name="ts_guessing_word",
        label="a masked word (TS-guessing)",
        gives="rate of masked words that are found, beside chance",
        needs="completions (--compare ts_guessing_word)",
        cost="at most k answers",
        finds="exact wording; what is easy to guess, too",
        source="Deng et al. 2023",
        departure="a drawn word that is no function word; no tagger chooses it",
    ),
    ReplicationMethod(
        name="ts_guessing_option",
        label="a masked option (TS-guessing)",
        gives="rate of masked wrong options that are found, beside chance",
        needs="completions; questions with options (--compare ts_guessing_option)",
        cost="at most k answers",
        finds="wrong options by heart, which no knowledge gives",
        source="Deng et al. 2023",
        departure="compares with the option that was masked; a port with the right one",
    ),
    ReplicationMethod(
        name="file_path",
        label="the file of an issue (path probe)",
        gives="p-value, against a control, by whole repositories; at most suspected",
        needs="completions; issues with their fixes, and a control of repositories "
        "after the cutoff (--compare file_path --control)",
        cost="at most k answers, and k of a control",
        finds="code benchmarks whose fixes are known; repositories that are better "
        "known than the control's, or easier to guess, too",
        source="Liang et al. 2025, arXiv:2506.12286",
        departure="issues that name the file, or whose fix changes several, are left "
        "out; a test in place of two rates",
    ),
)
"""In the order of reports."""

COMPARISONS: Mapping[str, Callable[[ComparisonInputs, Progress | None], Found]] = {
    "first_instances": first_instances,
    "cdd": cdd,
    "ts_guessing_word": ts_guessing_word,
    "ts_guessing_option": ts_guessing_option,
    "file_path": file_path,
}
"""Methods of `--compare`, which ask for something else than the second piece."""


def replication_words(report: Report) -> Words:
    """Words for the methods of a report; BLEURT is one for all tests."""
    rows = {
        name: row
        for name in named_methods(report)
        for row in REPLICATION_METHODS
        if name == row.name or name.startswith(f"{row.name}_")
    }
    return {name: words_of(row, name) for name, row in rows.items()}
