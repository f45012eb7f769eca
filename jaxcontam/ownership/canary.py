"""`jaxcontam canary`: was a secret that was injected learned?"""

import dataclasses
import math
import secrets
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tyro.conf import Positional

from jaxcontam import __version__
from jaxcontam.data.benchmark import content_digest, fingerprint, load_benchmark
from jaxcontam.data.journal import Journal
from jaxcontam.data.release import SEED_BYTES, commitment
from jaxcontam.errors import InputError
from jaxcontam.ownership import keyed_test as canary_chat
from jaxcontam.ownership.keyed_canary import (
    NEW_TOKENS,
    check_fits,
    keyed_canary,
    keyed_prompts,
)
from jaxcontam.ownership.keyed_rows import (
    ROWS_PER_GROUP,
    VALUES,
    make_keyed_rows,
    read_keyed_rows,
)
from jaxcontam.ownership.keyed_test import detectable_share
from jaxcontam.ownership.secret_test import (
    ALONE,
    EFFECT_UNIT,
    METHOD,
    MIN_EFFECT,
    alone_numbers,
    canary_rows,
    draw_sequences,
)
from jaxcontam.progress import progress_bar
from jaxcontam.proof.decision import p_of
from jaxcontam.proof.order_words import commitment_sentence
from jaxcontam.proof.outcome import bare_table
from jaxcontam.proof.publish import publish, shown
from jaxcontam.proof.result import DESIGNED, Evidence, OrderResult
from jaxcontam.proof.versions import VersionSet, plan_texts, score_texts
from jaxcontam.reports.flags import (
    DeviceFlags,
    ReportFlags,
    check_device_flags,
    check_min_effect,
    check_positive,
    flag_of,
    flags_of,
    open_for,
)
from jaxcontam.reports.new_files import write_new_files
from jaxcontam.reports.numbers import p_text
from jaxcontam.reports.report_files import make_folder
from jaxcontam.reports.stopwatch import Stopwatch, utc_now
from jaxcontam.scoring.api.address import PREFIX
from jaxcontam.scoring.api.budget import Spending
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.scoring.prompted_model import ServerSettings, open_prompted
from jaxcontam.stats.result import LEVEL
from jaxcontam.stats.rows import padded
from jaxcontam.terminal import Terminal, printable

_ENOUGH = "each secret needs at least one; 999 give p down to 0.001"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Canary(DeviceFlags, ReportFlags):
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
    """File of keyed rows, whose values are asked for: needs answers alone."""
    make: int | None = None
    """Draw this many secrets, or groups of keyed rows, and write both files."""
    n_held_out: int | None = None
    """With --make: held-out sequences (default: 999 a secret)."""
    kind: Literal["words", "digits"] = "words"
    """With --make: eight made-up words, or 48 digits."""
    prefix: str = ""
    """With --make: text before each sequence."""
    template: str | None = None
    r"""Text of a sequence, with fields in braces. With --chat: what is asked, such as
    "Question: {question}\nAnswer:" of a base model."""
    text_field: str | None = None
    """Field that is the text (default: the raw line)."""
    new_tokens: int = NEW_TOKENS
    """With --chat: most tokens of an answer; a model that thinks first needs more."""
    min_effect: float | None = None
    """What `no evidence` must have been able to find (default: 5 nats a secret, or a
    quarter of the groups)."""

    def __post_init__(self) -> None:
        if self.make is not None and self.make < 1:
            raise InputError(
                f"--make must be at least 1, got {self.make}",
                hint="it is how many secrets to draw; leave it out to test a model",
            )
        super().__post_init__()
        check_positive(self, "n_held_out", "new_tokens")
        check_min_effect(self.least_effect)
        check_device_flags(self, self.model)
        if self.make is None and self.model is None:
            raise InputError("no model", hint="name one, or draw secrets with --make N")
        if self.make is not None and self.model is not None:
            raise InputError(
                "--make asks no model", hint="leave out MODEL, or leave out --make"
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
            raise InputError("--held-out is missing", hint="or --chat, for keyed rows")
        elif self.new_tokens != NEW_TOKENS:
            raise InputError("--new-tokens goes with --chat", hint="leave it out")
        if self.make and self.n_held_out and self.n_held_out < self.make:
            raise InputError(
                f"--n-held-out {self.n_held_out} for --make {self.make}",
                hint=_ENOUGH,
            )

    @property
    def least_effect(self) -> float:
        """Effect that `no evidence` must have been able to find."""
        if self.min_effect is not None:
            return self.min_effect
        return MIN_EFFECT if self.chat is None else canary_chat.MIN_EFFECT

    def run(self) -> dict | None:
        """Test and return the report; with --make write both files instead."""
        if self.chat is not None:
            if self.make is None:
                assert self.model is not None
                return ask_for_values(self, self.model, self.chat, self.secret)
            make_chat_files(self.chat, self.secret, self.make)
            return None
        if self.make is not None:
            self._make(self.make)
            return None
        assert self.model is not None
        watch = Stopwatch()
        texts, place, n_secrets, left_out = self._read()
        model = open_for(self, self.model)
        digest = content_digest([row[0] for row in texts.rows])
        out = self.made_folder("canary", model, digest)
        scorer = self.scorer(model, out)
        plan = plan_texts(
            texts, model.tokenizer, prefix_id=model.prefix_id, seed=self.seed
        )
        with progress_bar("scoring sequences") as progress:
            scored = score_texts(
                texts, plan, scorer, per_token=False, progress=progress
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
                    hint="held-out sequences must never have been used",
                )
        if len(set(secrets.texts)) < len(secrets):
            raise InputError(f"{self.secret}: a secret stands there twice")
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
        left_out = tuple(
            f"{file.name}: {words}"
            for file in (secrets, others)
            for words in file.left_out
        )
        return texts, np.argsort(alphabetical), len(secrets), left_out

    def _make(self, n_secrets: int) -> None:
        assert self.held_out is not None
        n_held_out = self.n_held_out or 999 * n_secrets
        for path in (self.secret, self.held_out):
            if path.suffix != ".txt":
                raise InputError(
                    f"{path}: must end in .txt", hint="one sequence a line"
                )
        if "\n" in self.prefix or "\r" in self.prefix:
            raise InputError(
                "--prefix must be one line", hint="each sequence is a line of its file"
            )
        drawn = draw_sequences(
            n_secrets + n_held_out, kind=self.kind, prefix=self.prefix
        )
        console = Terminal()
        parts = (
            (self.secret, drawn[:n_secrets]),
            (self.held_out, drawn[n_secrets:]),
        )
        write_new_files(
            [
                (path, "".join(f"{text}\n" for text in texts).encode(), 0o600)
                for path, texts in parts
            ]
        )
        for path, texts in parts:
            sequences = f"{len(texts):,} sequence{'s' * (len(texts) != 1)}"
            console.say(
                f"{printable(path)}: {sequences}, commitment {commitment(path).sha256}"
            )
        console.say(
            f"Put the sequences of {self.secret} into what you publish, and keep "
            f"{self.held_out} to yourself. Publish both commitments with their date: "
            "they show later that neither file was chosen after a look at a model."
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
    rows = canary_rows(
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
        n_orders=max(map(len, rows.joint)) - 1,
        tokens_scored=n_scored,
        cached_tokens=n_cached,
        numbers=METHOD.analyse(rows.joint, seed),
        effect_unit=EFFECT_UNIT,
    )
    results, evidence = [joint], [Evidence(scores=padded(rows.joint))]
    for i, row in enumerate(rows.alone if n_secrets > 1 else (), 1):
        results.append(
            dataclasses.replace(
                joint,
                benchmark=f"{name}:{i}",
                method=ALONE.name,
                primary=False,
                n_strata=1,
                n_orders=len(row) - 1,
                tokens_scored=0,
                cached_tokens=n_scored + n_cached,
                numbers=alone_numbers(row, seed=seed),
            )
        )
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


# Flags of secrets that are scored; answers take none of them.
_OF_SCORES = (
    *("held_out", "n_held_out", "kind", "prefix", "text_field", "tokenizer"),
    *("context", "batch_tokens", "store", "no_store", "mesh", "shard", "distributed"),
)


def check_chat_flags(command: "Canary") -> None:
    """Refuse flags that would change nothing, too few groups, and other templates."""
    for field in dataclasses.fields(command):
        name = field.name
        if name in _OF_SCORES and getattr(command, name) != field.default:
            raise InputError(
                f"{flag_of(name)} does not go with --chat", hint="leave it out"
            )
    if command.least_effect > 1:
        raise InputError(
            f"--min-effect must be at most 1 with --chat, got {command.least_effect}",
            hint="it is a share of the groups",
        )
    if command.make and detectable_share(command.make, n_values=len(VALUES)) is None:
        raise InputError(
            f"--make {command.make}: too few groups for p <= {LEVEL:g}, were all known",
            hint="--make 32 finds a share of 20 %",
        )
    keyed_prompts((), command.template)


def make_chat_files(rows: Path, seed_file: Path, n_groups: int) -> None:
    """Draw a seed, and write both files."""
    if rows.suffix != ".jsonl":
        raise InputError(f"{rows}: must end in .jsonl", hint="a row a line")
    data, release = make_keyed_rows(
        secrets.token_bytes(SEED_BYTES), n_groups, version=__version__, made=utc_now()
    )
    sealed = release.to_bytes()
    write_new_files([(seed_file, sealed, 0o600), (rows, data, 0o644)])
    Terminal().say(
        f"{rows}: {n_groups:,} groups of {ROWS_PER_GROUP} rows",
        f"{seed_file}: their seed, commitment {commitment(seed_file).sha256}",
        f"Put the rows of {rows} among those that you publish, in any order and under "
        f"any template, and keep {seed_file} to yourself. Publish the commitment with "
        "its date: it shows later that nothing was chosen after a look at a model.",
    )


def ask_for_values(
    command: "Canary", model: str, rows: Path, seed_file: Path
) -> dict[str, Any]:
    """Ask, decide, write and print; returns the report."""
    groups, release = read_keyed_rows(rows, seed_file)

    def folder(name: str, info: ModelInfo) -> Path:
        """Equal names mean equal questions to one model."""
        # Nothing but its address is known of a served model.
        asked = model if model.startswith(PREFIX) else info.fingerprint
        decides = (asked, command.dtype, command.template or "", command.new_tokens)
        digest = fingerprint([release.released_digest, *map(str, decides)])
        return command.folder("canary", name, digest)

    settings = ServerSettings(
        spending=Spending(command.api_options.limits), concurrency=command.concurrency
    )
    with open_prompted(
        model,
        dtype=command.dtype,
        journal=lambda name, info: Journal(folder(name, info) / "answers.jsonl"),
        settings=settings,
    ) as opened:
        check_fits(opened, keyed_prompts(groups, command.template), command.new_tokens)
        out = folder(opened.name, opened.info)
        make_folder(out)
        with progress_bar("asking for values", unit="answers/s") as progress:
            found = keyed_canary(
                opened,
                rows,
                seed_file,
                template=command.template,
                new_tokens=command.new_tokens,
                min_effect=command.least_effect,
                seed=command.seed,
                progress=progress,
                command=("canary", model, *flags_of(command)),
            )
    return shown(
        lambda: found.written(out),
        lambda console: console.say(*_sentences(found.results[0])),
        as_json=command.json,
    )


def _sentences(result: OrderResult) -> list[str]:
    share = max(0.0, result.effect or 0.0)
    return [
        f"{result.benchmark}: {result.verdict}, {p_of(result)} by an exact test of "
        f"{result.n_strata} groups, of which the model knows about {share:.0%}.",
        commitment_sentence(result) or "",
        *(f"{words}." for words in result.warnings),
    ]
