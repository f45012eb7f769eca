"""The design of a membership run: its flags, checked before anything is read."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxcontam.arguments import NamedFields, check_fields, check_seed, with_settings
from jaxcontam.errors import InputError
from jaxcontam.reports.flags import TextFlags, check_positive

Source = str | Path | Sequence[str]
"""Texts, a file of them, a folder of .txt files, or `hf:ORG/NAME[...]:SPLIT`."""

AUTO, ALL = "auto", "all"
"""Words of `--scores`: those of one pass or two, and all that can be had."""
OF_CORPUS, OF_MASKED = "dc_pdd", "neighbourhood"
"""Scores that take a file or a folder."""


# No slots: the command joins these fields to those of devices.
@dataclasses.dataclass(frozen=True, kw_only=True)
class MembershipDesign(TextFlags, NamedFields):
    """Texts, scores and rates of a run; the fields are flags of `membership`.

    Raises:
        InputError: If fields exclude each other or are out of range; names the flag.
    """

    roles = ("member", "document")
    seed: int = 0
    """Seeds every draw: folds, resamples, samples."""
    texts: Source | None = None
    """In question, or a file with labels: strings, a path, or an hf: name. A folder
    gives random snippets of each of its .txt files, which is a document."""
    members: Source | None = None
    """Texts that are known to have been seen."""
    nonmembers: Source | None = None
    """Texts that cannot have been seen, of the same kind."""
    text: str | None = None
    r"""Field that is the text, or a template of fields in braces, such as
    "Q: {question} A: {answer}" (default: fields of WikiMIA and BookMIA, else the raw
    line); paraphrase, a column that a WikiMIA may have, leaves its labels."""
    fields: tuple[str, ...] = ()
    """Names of fields: member=NAME, 1 for members and 0 for others (default: label
    beside input or snippet); document=NAME, the document that a text was cut from: its
    texts count as one, and with known documents of both kinds it gets a rate."""
    length: int | None = None
    """Cut each text to its first N words; words of a folder's snippets (else 512)."""
    sample: int | None = None
    """Take N records of each file, drawn by their content; snippets of each file of a
    folder (else 100)."""
    scores: tuple[str, ...] = (AUTO,)
    """Names of scores, separated by blanks or commas, or auto (one pass or two), or
    all. The first name decides (auto and all: min_k): choose it before you look.
    dc_pdd:FILE reads token frequencies from text files; neighbourhood:FOLDER takes
    neighbours from a masked model, or one that fills spans as T5 does, in torch
    (default: edits of words)."""
    no_prefix: bool = False
    """Put no BOS or EOS before a text whose tokenizer puts none there, as Min-K%'s
    released code does; its first token is not scored then."""
    k: float = 20.0
    """Percentage of least likely tokens that the Min-K% family keeps."""
    reference: Any = None
    """Model that saw neither side; without one the verdict is at
    most `may rank higher`."""
    fpr: tuple[float, ...] = (0.05, 0.01)
    """False-positive rates at which to report the share of members found."""

    def __post_init__(self) -> None:
        check_fields(self)
        super().__post_init__()
        check_seed(self.seed)
        check_positive(self, "length", "sample")
        self.named("member")
        if not 0 < self.k <= 100:
            raise InputError(f"--k must be above 0 and at most 100, got {self.k:g}")
        if len(set(self.fpr)) < len(self.fpr):
            raise InputError(f"--fpr names a rate twice {tuple(self.fpr)}")
        for rate in self.fpr:
            if not 0 < rate < 1:
                raise InputError(f"--fpr must lie between 0 and 1, got {rate:g}")
        for name, setting in self._named_scores:
            if setting is not None and name not in (OF_CORPUS, OF_MASKED):
                raise InputError(f"--scores {name}:{setting}: {name} takes no file")
        if self.masked_lm is not None and not self.masked_lm.is_dir():
            raise InputError(
                f"--scores {OF_MASKED}:{self.masked_lm}: no such folder",
                hint="a folder with config.json, model.safetensors and tokenizer.json",
            )
        if self.texts is None and self.members is None:
            raise InputError(
                "no texts to score",
                hint="name a file of texts, or give --members and --nonmembers",
            )
        if self.members is not None and self.nonmembers is None:
            raise InputError(
                "--nonmembers is missing",
                hint="give texts that cannot have been seen, to compare members with",
            )
        if self.named("member") is not None and self.nonmembers is not None:
            raise InputError(
                "--fields member=NAME and --nonmembers contradict each other",
                hint="give one file with labels, or two files, one for each side",
            )

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names after `--scores`, auto and all among them."""
        return tuple(dict.fromkeys(name for name, _ in self._named_scores))

    @property
    def corpus(self) -> tuple[Path, ...]:
        """Text files whose tokens are counted."""
        return self._settings(OF_CORPUS)

    @property
    def masked_lm(self) -> Path | None:
        """Folder of a masked language model."""
        return next(iter(self._settings(OF_MASKED)), None)

    def _settings(self, score: str) -> tuple[Path, ...]:
        return tuple(
            Path(one) for name, one in self._named_scores if name == score and one
        )

    @property
    def _named_scores(self) -> list[tuple[str, str | None]]:
        return with_settings(self.scores, flag="--scores", several=(OF_CORPUS,))
