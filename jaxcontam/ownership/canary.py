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

import numpy as np

from jaxcontam.data.benchmark import content_digest, load_benchmark
from jaxcontam.data.release import commitment
from jaxcontam.errors import InputError
from jaxcontam.ownership.flags import ENOUGH, MIN_EFFECT, Canary, CanaryKind
from jaxcontam.ownership.keyed_canary import (
    ask_for_values,
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

EFFECT_UNIT = "nats per secret"


def test_or_make(command: Canary) -> dict | None:
    """Test and return the report; with --make write both files instead."""
    if command.make is not None:
        if command.chat is None:
            return _make(command, command.make)
        return make_chat_files(command.chat, command.secret, command.make)
    assert command.model is not None
    if command.chat is not None:
        return ask_for_values(command)
    watch = Stopwatch()
    texts, place, n_secrets, left_out = _read(command)
    model = open_for(command, command.model)
    digest = content_digest([row[0] for row in texts.rows])
    out = command.made_folder("canary", model, digest)
    scored = score_versions(
        texts,
        model,
        command.scorer(model, out),
        command.seed,
        per_token=False,
        bar="scoring sequences",
    )
    results, evidence = canary_results(
        np.concatenate(scored.rows)[place],
        n_secrets,
        name=printable(command.secret.stem),
        digest=digest,
        seed=command.seed,
        n_scored=scored.n_scored,
        n_cached=scored.n_cached,
    )
    assert command.held_out is not None
    sealed = (commitment(command.secret), commitment(command.held_out))
    results[0] = dataclasses.replace(results[0], commitments=sealed, warnings=left_out)
    return publish(
        command,
        ("canary", command.model),
        results,
        evidence,
        watch=watch,
        model=model,
        min_effect=command.least_effect,
        out=out,
        show=_print,
    )


def _read(command: Canary) -> tuple[VersionSet, np.ndarray, int, tuple[str, ...]]:
    """All sequences in an order that tells nothing of secrets, and their places."""
    assert command.held_out is not None
    secrets, others = (
        load_benchmark(path, template=command.template, text_field=command.text_field)
        for path in (command.secret, command.held_out)
    )
    held_out = {text: i for i, text in enumerate(others.texts, 1)}
    for i, text in enumerate(secrets.texts, 1):
        if text in held_out:
            raise InputError(
                f"{command.held_out}: example {held_out[text]} is secret {i}",
                hint="give held-out sequences that were never used",
            )
    if len(set(secrets.texts)) < len(secrets):
        raise InputError(f"{command.secret}: a secret occurs twice")
    if len(others) < len(secrets):
        raise InputError(
            f"{command.held_out}: {len(others)} held-out sequences for "
            f"{len(secrets)} secrets",
            hint=ENOUGH,
        )
    both = [*secrets.texts, *others.texts]
    places = [f"{command.secret}: example {i}" for i in range(1, len(secrets) + 1)]
    places += [f"{command.held_out}: example {i}" for i in range(1, len(others) + 1)]
    alphabetical = sorted(range(len(both)), key=both.__getitem__)
    texts = VersionSet(
        name=printable(command.secret.stem),
        rows=tuple((both[i],) for i in alphabetical),
        places=tuple(places[i] for i in alphabetical),
    )
    left_out = [f"{secrets.name}: {words}" for words in secrets.left_out]
    left_out += [f"{others.name}: {words}" for words in others.left_out]
    return texts, np.argsort(alphabetical), len(secrets), tuple(left_out)


def _make(command: Canary, n_secrets: int) -> None:
    assert command.held_out is not None
    n_held_out = command.n_held_out or 999 * n_secrets
    for path in (command.secret, command.held_out):
        if path.suffix != ".txt":
            words = f"{path}: must end in .txt"
            raise InputError(words, hint="one sequence per line")
    if "\n" in command.prefix or "\r" in command.prefix:
        raise InputError(
            "--prefix must be one line",
            hint="leave out line breaks: each sequence is one line of its file",
        )
    n_drawn = n_secrets + n_held_out
    drawn = draw_sequences(n_drawn, kind=command.kind, prefix=command.prefix)
    parts = {command.secret: drawn[:n_secrets], command.held_out: drawn[n_secrets:]}
    lines = {path: "".join(f"{x}\n" for x in texts) for path, texts in parts.items()}
    write_new_files([(path, x.encode(), 0o600) for path, x in lines.items()])
    console = Terminal()
    for path, texts in parts.items():
        sequences = f"{len(texts):,} sequence{'' if len(texts) == 1 else 's'}"
        console.say(
            f"{printable(path)}: {sequences}, commitment {commitment(path).sha256}"
        )
    console.say(
        f"Put the sequences of {command.secret} into what you publish, and keep "
        f"{command.held_out} to yourself. Publish both commitments with their date: "
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
        raise InputError(f"{N} held-out sequences for {K} secrets", hint=ENOUGH)
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
