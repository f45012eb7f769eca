"""Flags of `jaxcontam membership`.

Nothing slow is imported, so that --help and a word that does not parse
are answered at once; a command imports its work when it runs.
"""

import dataclasses
from typing import Any

from tyro.conf import Positional

from jaxcontam.members.design import MembershipDesign
from jaxcontam.reports.flags import (
    ReportFlags,
    ScoringFlags,
    TextFlags,
    in_order,
)


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Membership(MembershipDesign, ScoringFlags, TextFlags, ReportFlags):
    """Find which texts a model saw, by scores judged against known texts.

    Examples:
        jaxcontam membership MODEL_DIR wikimia.jsonl  # a file with labels
        # two files
        jaxcontam membership MODEL_DIR --members seen.txt --nonmembers unseen.txt
        # texts in question
        jaxcontam membership MODEL_DIR texts.txt --nonmembers unseen.txt
        # a rate for each book of a folder
        jaxcontam membership MODEL_DIR books/ --members old/ --nonmembers new/
        # beyond `may rank higher`
        jaxcontam membership MODEL_DIR wikimia.jsonl --reference OTHER_DIR
        # scores of another engine
        jaxcontam membership scores.jsonl --members seen.txt --nonmembers unseen.txt
    """

    texts: Positional[str | None] = None
    """File of texts, hf:ORG/NAME:SPLIT, tfds:NAME/SPLIT, or folder of .txt files, each
    a document."""
    members: str | None = None
    """Texts that are known to have been seen."""
    nonmembers: str | None = None
    """Texts that cannot have been seen, of the same kind."""
    reference: str | None = None
    """Model that saw neither side; without one the verdict is at
    most `may rank higher`."""
    dry_run: bool = False
    """Print scores, numbers of tokens and the time they take; score nothing."""

    def run(self) -> dict[str, Any] | None:
        """Score, judge, write and print; returns the report, or None for a dry run."""
        from jaxcontam.members.command import rank

        return rank(self)
