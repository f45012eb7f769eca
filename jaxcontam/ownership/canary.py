"""`jaxcontam canary`: secret sequences that were injected, among held-out twins.

Dimension key
    K  secrets
    N  held-out sequences
    M  versions in a row
"""

import dataclasses
import math
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from tyro.conf import Positional

from jaxcontam.data.benchmark import content_digest, load_benchmark
from jaxcontam.data.release import commitment
from jaxcontam.data.templates import RecordText
from jaxcontam.errors import InputError
from jaxcontam.ownership.keyed_canary import MIN_EFFECT as MIN_KNOWN
from jaxcontam.ownership.keyed_canary import (
    NEW_TOKENS,
    ask_for_values,
    check_chat_flags,
    make_chat_files,
)
from jaxcontam.ownership.variants import score_versions
from jaxcontam.proof.advice import p_of
from jaxcontam.proof.outcome import bare_table
from jaxcontam.proof.publish import publish
from jaxcontam.proof.result import DESIGNED, Evidence, OrderResult
from jaxcontam.proof.sentences import commitment_sentence
from jaxcontam.proof.versions import VersionMethod, VersionSet, version_numbers
from jaxcontam.reports.flags import (
    DeviceFlags,
    ReportFlags,
    check_device_flags,
    check_min_effect,
    check_positive,
    flag_of,
    in_order,
    open_for,
)
from jaxcontam.reports.numbers import p_text
from jaxcontam.reports.report import Stopwatch
from jaxcontam.reports.report_files import write_new_files
from jaxcontam.reports.terms import ProofWords
from jaxcontam.stats.orders import row_generator
from jaxcontam.stats.result import OrderNumbers
from jaxcontam.stats.rows import padded
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable

CanaryKind = Literal["words", "digits"]
EFFECT_UNIT = "nats per secret"
MIN_EFFECT = 5.0
"""Nats a secret: it is then about 150 times likelier than it was."""

_ENOUGH = "give at least one per secret; 999 reach p = 0.001"


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
            check_chat_flags(self)
        elif self.held_out is None:
            raise InputError(
                "--held-out is missing", hint="name it, or give --chat for keyed rows"
            )
        elif self.new_tokens != NEW_TOKENS:
            raise InputError("--new-tokens goes with --chat", hint="leave it out")
        if self.make and self.n_held_out and self.n_held_out < self.make:
            raise InputError(
                f"--n-held-out {self.n_held_out} for --make {self.make}", hint=_ENOUGH
            )

    @property
    def least_effect(self) -> float:
        """Effect that `no evidence` must have been able to find."""
        if self.min_effect is not None:
            return self.min_effect
        return MIN_EFFECT if self.chat is None else MIN_KNOWN

    def run(self) -> dict | None:
        """Test and return the report; with --make write both files instead."""
        if self.make is not None:
            if self.chat is None:
                return self._make(self.make)
            return make_chat_files(self.chat, self.secret, self.make)
        assert self.model is not None
        if self.chat is not None:
            return ask_for_values(self)
        watch = Stopwatch()
        texts, place, n_secrets, left_out = self._read()
        model = open_for(self, self.model)
        digest = content_digest([row[0] for row in texts.rows])
        out = self.made_folder("canary", model, digest)
        scored = score_versions(
            texts,
            model,
            self.scorer(model, out),
            self.seed,
            per_token=False,
            bar="scoring sequences",
        )
        results, evidence = canary_results(
            np.concatenate(scored.rows)[place],
            n_secrets,
            name=printable(self.secret.stem),
            digest=digest,
            seed=self.seed,
            n_scored=scored.n_scored,
            n_cached=scored.n_cached,
        )
        assert self.held_out is not None
        sealed = (commitment(self.secret), commitment(self.held_out))
        results[0] = dataclasses.replace(
            results[0], commitments=sealed, warnings=left_out
        )
        return publish(
            self,
            ("canary", self.model),
            results,
            evidence,
            watch=watch,
            model=model,
            min_effect=self.least_effect,
            out=out,
            show=_print,
        )

    def _read(self) -> tuple[VersionSet, np.ndarray, int, tuple[str, ...]]:
        """All sequences in an order that tells nothing of secrets, and their places."""
        assert self.held_out is not None
        secrets, others = (
            load_benchmark(path, template=self.template, text_field=self.text_field)
            for path in (self.secret, self.held_out)
        )
        held_out = {text: i for i, text in enumerate(others.texts, 1)}
        for i, text in enumerate(secrets.texts, 1):
            if text in held_out:
                raise InputError(
                    f"{self.held_out}: example {held_out[text]} is secret {i}",
                    hint="give held-out sequences that were never used",
                )
        if len(set(secrets.texts)) < len(secrets):
            raise InputError(f"{self.secret}: a secret occurs twice")
        if len(others) < len(secrets):
            raise InputError(
                f"{self.held_out}: {len(others)} held-out sequences for "
                f"{len(secrets)} secrets",
                hint=_ENOUGH,
            )
        both = [*secrets.texts, *others.texts]
        places = [f"{self.secret}: example {i}" for i in range(1, len(secrets) + 1)]
        places += [f"{self.held_out}: example {i}" for i in range(1, len(others) + 1)]
        alphabetical = sorted(range(len(both)), key=both.__getitem__)
        texts = VersionSet(
            name=printable(self.secret.stem),
            rows=tuple((both[i],) for i in alphabetical),
            places=tuple(places[i] for i in alphabetical),
        )
        left_out = [f"{secrets.name}: {words}" for words in secrets.left_out]
        left_out += [f"{others.name}: {words}" for words in others.left_out]
        return texts, np.argsort(alphabetical), len(secrets), tuple(left_out)

    def _make(self, n_secrets: int) -> None:
        assert self.held_out is not None
        n_held_out = self.n_held_out or 999 * n_secrets
        for path in (self.secret, self.held_out):
            if path.suffix != ".txt":
                words = f"{path}: must end in .txt"
                raise InputError(words, hint="one sequence per line")
        if "\n" in self.prefix or "\r" in self.prefix:
            raise InputError(
                "--prefix must be one line",
                hint="leave out line breaks: each sequence is one line of its file",
            )
        n_drawn = n_secrets + n_held_out
        drawn = draw_sequences(n_drawn, kind=self.kind, prefix=self.prefix)
        parts = {self.secret: drawn[:n_secrets], self.held_out: drawn[n_secrets:]}
        lines = {
            path: "".join(f"{x}\n" for x in texts) for path, texts in parts.items()
        }
        write_new_files([(path, x.encode(), 0o600) for path, x in lines.items()])
        console = Terminal()
        for path, texts in parts.items():
            sequences = f"{len(texts):,} sequence{'' if len(texts) == 1 else 's'}"
            console.say(
                f"{printable(path)}: {sequences}, commitment {commitment(path).sha256}"
            )
        console.say(
            f"Put the sequences of {self.secret} into what you publish, and keep "
            f"{self.held_out} to yourself. Publish both commitments with their date: "
            "they show later that neither file was chosen after testing a model."
        )


def canary_results(
    loglik: np.ndarray,
    n_secrets: int,
    *,
    name: str,
    digest: str,
    seed: int,
    n_scored: int = 0,
    n_cached: int = 0,
) -> tuple[list[OrderResult], list[Evidence]]:
    """The joint test of all secrets, and each of several secrets alone.

    `loglik` is in nats, secrets first; `digest` is that of all sequences, blind to
    which are secret.
    """
    joint_rows, alone_rows = canary_rows(
        loglik[:n_secrets], loglik[n_secrets:], seed=seed, content_digest=digest
    )
    joint = OrderResult(
        benchmark=name,
        fingerprint=digest,
        content_digest=digest,
        order_provenance="declared",
        n_examples=len(loglik),
        method=METHOD.name,
        primary=True,
        null=DESIGNED,
        validity="exact",
        n_strata=n_secrets,
        n_orders=max(map(len, joint_rows)) - 1,
        tokens_scored=n_scored,
        cached_tokens=n_cached,
        numbers=METHOD.analyse(joint_rows, seed),
        effect_unit=EFFECT_UNIT,
    )
    results, evidence = [joint], [Evidence(scores=padded(joint_rows))]
    for i, row in enumerate(alone_rows if n_secrets > 1 else (), 1):
        alone = dataclasses.replace(
            joint,
            benchmark=f"{name}:{i}",
            method=ALONE.name,
            primary=False,
            n_strata=1,
            n_orders=len(row) - 1,
            tokens_scored=0,
            cached_tokens=n_scored + n_cached,
            numbers=alone_numbers([row], seed),
        )
        results.append(alone)
        evidence.append(Evidence(scores=row[None]))
    return results, evidence


def _print(results: list[OrderResult], console: Terminal) -> None:
    joint, *alone = results
    rows = []
    for result in alone or [joint]:
        n, bits = result.n_orders + 1, result.numbers.exposure
        assert bits is not None
        p, rank = p_text(result.numbers.log10_p), f"{n * 2**-bits:.0f} of {n}"
        cells = (result.benchmark, p, rank, f"{bits:.1f} bits", f"{math.log2(n):.1f}")
        rows.append(cells)
    header = ("secret", "p", "rank", "exposure", "of at most")
    console.print(bare_table(header, rows, gap=2))
    console.print(
        f"\n{joint.benchmark}: {joint.verdict}, {p_of(joint)} by an exact test "
        f"of {joint.n_strata} {'secrets' if joint.n_strata > 1 else 'secret'} against "
        f"{joint.n_examples - joint.n_strata:,} held-out sequences, if the secrets "
        "were drawn like them."
    )
    console.print(commitment_sentence(joint))
    console.say(*joint.warnings)


def canary_rows(
    secret_K: np.ndarray, held_out_N: np.ndarray, *, seed: int, content_digest: str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows of the joint test, and those of each secret alone, a secret's score first.

    Held-out scores are dealt to secrets at random, as evenly as they go: the rows of
    the joint test are independent. The order of the files would not do: sorted files
    would make it depend on what is scored. Alone, each secret stands among all.
    """
    K, N = len(secret_K), len(held_out_N)
    if N < K:
        raise InputError(f"{N} held-out sequences for {K} secrets", hint=_ENOUGH)
    dealt_N = row_generator(seed, content_digest).permutation(N)
    joint = [np.r_[secret_K[k], held_out_N[dealt_N[k::K]]] for k in range(K)]
    return joint, [np.r_[secret, held_out_N] for secret in secret_K]


def alone_numbers(rows: Sequence[np.ndarray], seed: int) -> OrderNumbers:
    """A secret among all held-out ones: p = (1 + #{held-out >= secret}) / (N + 1).

    Null hypothesis: the secret was drawn like the held-out ones, and the model saw none
    of them. Ties count against detection. The seed changes nothing: p is a count.

    Source:
        Phipson and Smyth (2010) for the added 1.
    """
    (row_M,) = rows
    numbers = version_numbers(rows, seed)
    return dataclasses.replace(
        numbers,
        p_monte_carlo=numbers.p_value,
        exposure=exposure(numbers.p_value, len(row_M)),
    )


def exposure(p_value: float, n_candidates: int) -> float:
    """log2(candidates) - log2(rank of the secret among them), in bits.

    The rank counts the secret and everything that scores as high: it is the p-value
    times the candidates. 0 bits is the last rank, log2(candidates) the first.

    Source:
        Carlini et al., "The Secret Sharer", arXiv:1802.08232; with the held-out
        sequences in place of the whole space of secrets.
    """
    return math.log2(n_candidates) - math.log2(round(p_value * n_candidates))


def draw_sequences(
    n: int, *, kind: CanaryKind = "words", prefix: str = ""
) -> list[str]:
    """`n` different random sequences, from the operating system's randomness.

    A secret of either kind holds about 150 bits: nobody guesses it, and it is long
    enough that a model which saw it often gives it a high probability.
    """
    drawn: dict[str, None] = {}
    while len(drawn) < n:
        if kind == "words":
            letters = ("bcdfghjklmnpqrstvwxz", "aeiou") * 3
            parts = ["".join(map(secrets.choice, letters)) for _ in range(8)]
        else:
            parts = [f"{secrets.randbelow(10_000):04d}" for _ in range(12)]
        drawn[prefix + " ".join(parts)] = None
    return list(drawn)


def _joint_numbers(rows: Sequence[np.ndarray], seed: int) -> OrderNumbers:
    """Joint test of all secrets; with one, the test of that secret alone."""
    if len(rows) == 1:
        return alone_numbers(rows, seed)
    return version_numbers(rows, seed)


_WORDS = ProofWords(
    row="secret",
    version="sequence",
    versions="sequences",
    seen="secrets seen; nothing else was tested",
    unseen="that the secrets were learned",
    more="more secrets or more held-out sequences are needed",
    meaning="A small p-value says that the model prefers secrets that were put into "
    "published text to unused sequences drawn like them. It says nothing about other "
    "text. ",
    silence="A large p-value does not say that the secrets were never seen: a model "
    "may see them a few times and not learn them.",
    assumed={
        DESIGNED: "that the secrets were drawn like the held-out sequences, and these "
        "were never used",
    },
    unchecked="since only their owner knows how the sequences were made",
    chance="each of {n_strata} secrets would be as likely as any of the held-out "
    "sequences dealt to it (up to {n_orders}) to score best; the summed score would "
    "reach the observed one with probability {p}",
    null_caption="Sum of the published scores over secrets, and the same sum with a "
    "random sequence in place of each secret.",
    evidence_caption="Where the evidence is: the score of each secret, in the order of "
    "the file.",
    limits="versions",
)

METHOD = VersionMethod(
    name="canary",
    command="canary",
    analyse=_joint_numbers,
    in_random_places=False,
    least_effects={EFFECT_UNIT: MIN_EFFECT},
    null=DESIGNED,
    validity="exact",
    cost="each secret and each held-out sequence once",
    finds="secrets that were injected and learned, all of them together",
    source="Carlini et al. 2019, arXiv:1802.08232; Meeus et al. 2024 (copyright traps)",
    words=_WORDS,
)

ALONE = dataclasses.replace(
    METHOD,
    name="canary_alone",
    analyse=alone_numbers,
    cost="nothing in addition to canary",
    finds="one secret among all held-out sequences: its p-value and exposure",
    source="Carlini et al. 2019, arXiv:1802.08232",
)
