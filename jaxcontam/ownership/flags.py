"""Flags of the commands of who owns a text: `canary`, `variants` and `release`.

Nothing slow is imported, so that --help and a word that does not parse
are answered at once; a command imports its work when it runs.
"""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from jaxcontam.arguments import NamedFields
from jaxcontam.data.templates import RecordText
from jaxcontam.errors import InputError
from jaxcontam.reports.flags import (
    DeviceFlags,
    ReportFlags,
    ScoringFlags,
    check_device_flags,
    check_min_effect,
    check_positive,
    flag_of,
    in_order,
)

CanaryKind = Literal["words", "digits"]
MIN_EFFECT = 5.0
"""Nats a secret: it is then about 150 times likelier than it was."""
MIN_KNOWN = 0.25
"""Share of the groups, known for certain, that `no evidence` must be able to find."""
NEW_TOKENS = 64
"""Most tokens of an answer."""

ENOUGH = "give at least one per secret; 999 reach p = 0.001"


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Canary(DeviceFlags, ReportFlags, RecordText):
    """Test injected secrets against held-out ones, or make both.

    Examples:
        # draw them
        jaxcontam canary --make 5 --n-held-out 4995 --secret s.txt --held-out h.txt
        # later: were they read?
        jaxcontam canary MODEL_DIR --secret s.txt --held-out h.txt
        # keyed rows, for models that only answer
        jaxcontam canary --make 32 --chat rows.jsonl --secret seed.json
        jaxcontam canary api:https://host/v1#M --chat rows.jsonl --secret seed.json
    """

    model: Positional[str | None] = None
    """Model directory, hub name or api:URL#NAME; left out with --make."""
    secret: Path
    """File of the injected sequences, one per example; with --make, to be written.
    With --chat: the seed file of the keyed rows."""
    held_out: Path | None = None
    """File of sequences drawn the same way and never used."""
    chat: Path | None = None
    """File of keyed rows, whose values are requested: needs only answers."""
    make: int | None = None
    """Draw this many secrets, or groups of keyed rows, and write both files."""
    n_held_out: int | None = None
    """With --make: held-out sequences (default: 999 per secret)."""
    kind: Literal["words", "digits"] = "words"
    """With --make: eight made-up words, or 48 digits."""
    prefix: str = ""
    """With --make: text before each sequence."""
    text: str | None = None
    r"""Field that is a sequence, or a template of fields in braces (default: the raw
    line). With --chat: the prompt, such as "Question: {question}\nAnswer:" for a base
    model."""
    new_tokens: int = NEW_TOKENS
    """With --chat: most tokens of an answer; a model that thinks first needs more."""
    min_effect: float | None = None
    """Effect that the test must be able to find before it says `no evidence` (default:
    5 nats per secret, or a quarter of the groups)."""

    def __post_init__(self) -> None:
        if self.make is not None and self.make < 1:
            raise InputError(
                f"--make must be at least 1, got {self.make}",
                hint="give the number of secrets to draw; leave it out to test a model",
            )
        super().__post_init__()
        check_positive(self, "n_held_out", "new_tokens")
        check_min_effect(self.least_effect)
        check_device_flags(self, self.model)
        if self.make is None and self.model is None:
            raise InputError("no model", hint="name one, or draw secrets with --make N")
        if self.make is not None and self.model is not None:
            raise InputError(
                "--make uses no model", hint="leave out MODEL, or leave out --make"
            )
        for name in ("n_held_out", "prefix"):
            if self.make is None and getattr(self, name):
                flag = flag_of(name)
                raise InputError(
                    f"{flag} goes with --make",
                    hint=f"leave out {flag}, or draw secrets with --make N",
                )
        if self.chat is not None:
            from jaxcontam.ownership.keyed_canary import check_chat_flags

            check_chat_flags(self)
        elif self.held_out is None:
            raise InputError(
                "--held-out is missing", hint="name it, or give --chat for keyed rows"
            )
        elif self.new_tokens != NEW_TOKENS:
            raise InputError("--new-tokens goes with --chat", hint="leave it out")
        if self.make and self.n_held_out and self.n_held_out < self.make:
            raise InputError(
                f"--n-held-out {self.n_held_out} for --make {self.make}", hint=ENOUGH
            )

    @property
    def least_effect(self) -> float:
        """Effect that `no evidence` must have been able to find."""
        if self.min_effect is not None:
            return self.min_effect
        return MIN_EFFECT if self.chat is None else MIN_KNOWN

    def run(self) -> dict | None:
        """Test and return the report; with --make write both files instead."""
        from jaxcontam.ownership.canary import test_or_make

        return test_or_make(self)


@in_order
@dataclasses.dataclass(frozen=True, kw_only=True)
class Variants(ScoringFlags, ReportFlags, NamedFields):
    """Test published texts against rewrites of each.

    Examples:
        # published against other wordings
        jaxcontam variants MODEL_DIR texts.jsonl --randomised
    """

    file: Positional[Path]
    """.jsonl or .json rows with a published text and a list of rewrites."""
    roles = ("text", "variants")
    fields: tuple[str, ...] = ()
    """Names of fields: text=NAME, for the published text, and variants=NAME, for its
    rewrites, any number of them (default: text=text variants=variants)."""
    randomised: bool = False
    """Declare that the published version was drawn at random among all versions."""
    score: Literal["token", "total"] = "token"
    """Mean log-probability per token, or the total, which prefers short versions."""
    limit: int | None = None
    """Use only the first N rows."""
    min_effect: float | None = None
    """Nats that `no evidence` must be able to find (default: 0.1 per token, 5 in
    total)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "limit")
        if self.min_effect is not None:
            check_min_effect(self.min_effect)
        self.named("text")

    def run(self) -> dict:
        """Load, score, decide, write and print; returns the report."""
        from jaxcontam.ownership.variants import test

        return test(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """Put a benchmark into a secret seeded order, for an exact proof later.

    Examples:
        # a secret random order
        jaxcontam release test.jsonl --seed-file test.seed.json
        jaxcontam release test-released.jsonl --seed-file test.seed.json --check
    """

    benchmark: Positional[Path]
    """File to publish: .jsonl, .json, .csv, .tsv, .txt."""
    seed_file: Annotated[Path, tyro.conf.arg(metavar="SEED.json")]
    """File for the secret seed, or with --check the file that holds it; never
    overwritten."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="NAME-released.jsonl")] = None
    """Output file (default: NAME-released in the benchmark's folder)."""
    no_header: bool = False
    """Read the first row of a .csv or .tsv file as an example too."""
    check: bool = False
    """Check that BENCHMARK is the file and the order of the seed; write nothing."""

    def __post_init__(self) -> None:
        if self.check and self.out is not None:
            raise InputError("--check writes nothing", hint="leave out --out")

    def run(self) -> None:
        """Write the reordered file and its seed, or check them."""
        from jaxcontam.ownership.release import release_or_check

        return release_or_check(self)
