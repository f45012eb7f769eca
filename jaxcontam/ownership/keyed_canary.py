"""Keyed canary: a model is asked for values that only published rows connect to keys.

A group has a key, two made-up words, and a value, one of `VALUES`. Each of its rows
asks for the value by the key in other words, and has the value as its answer: whatever
template joins the two, key and value stay together, and no two rows are nearly alike.
Everything follows from a secret seed, so whoever has it can make the file again.

Dimension key
    G  groups
    V  values that each group's was drawn from
"""

import dataclasses
import hmac
import json
import math
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxcontam import __version__
from jaxcontam.arguments import Dtype, flag_of, public
from jaxcontam.data.benchmark import content_digest, fingerprint, read_text
from jaxcontam.data.journal import Journal
from jaxcontam.data.release import (
    SEED_BYTES,
    SeedFile,
    commitment,
    read_release,
    release_order,
    search_warnings,
    sha256_of,
)
from jaxcontam.data.templates import fill_template, template_pieces
from jaxcontam.errors import InputError
from jaxcontam.ownership.flags import MIN_KNOWN, NEW_TOKENS, Canary
from jaxcontam.progress import Progress, default_bar, progress_bar
from jaxcontam.proof.advice import p_of
from jaxcontam.proof.publish import AuditResult, shown
from jaxcontam.proof.result import DESIGNED, RELEASED, Evidence, OrderResult
from jaxcontam.proof.sentences import commitment_sentence
from jaxcontam.proof.verdict import decide
from jaxcontam.proof.versions import VersionMethod, version_numbers
from jaxcontam.reports.flags import flags_of
from jaxcontam.reports.report import Stopwatch, utc_now
from jaxcontam.reports.report_files import make_folder, write_new_files
from jaxcontam.reports.terms import ProofWords
from jaxcontam.scoring.api.address import PREFIX
from jaxcontam.scoring.api.budget import Spending
from jaxcontam.scoring.completer import Completion, without_thoughts
from jaxcontam.scoring.opened import ModelInfo
from jaxcontam.scoring.prompted_model import (
    PromptedModel,
    ServerSettings,
    open_prompted,
)
from jaxcontam.stats.result import LEVEL, OrderNumbers
from jaxcontam.terminal import Terminal
from jaxcontam.terminal_text import printable

EFFECT_UNIT = "share of groups"
PROMPTS = (
    "{question}",
    "Question: {question}\nAnswer:",
    "{question}\nAnswer with one word. If you do not know, guess.",
)
"""Forms of each question: as published, as many corpora hold questions, and so that
a model dares to answer."""

# A power of two, so that a digest's remainder is uniform. With other words, or other
# questions, the same seed would make another file: that takes a new version.
VALUES = (
    *("acorn", "anchor", "anvil", "apple", "badger", "barrel", "basket", "beaver"),
    *("bridge", "bucket", "butterfly", "candle", "carrot", "castle", "cherry"),
    *("clover", "compass", "crab", "dolphin", "dragon", "drum", "eagle", "falcon"),
    *("feather", "ferry", "fox", "garlic", "hammer", "harp", "hedgehog", "heron"),
    *("horse", "kettle", "ladder", "lantern", "lemon", "lobster", "mirror", "mole"),
    *("mushroom", "needle", "otter", "owl", "oyster", "parrot", "pear", "pumpkin"),
    *("rabbit", "raven", "saddle", "scissors", "snail", "spider", "squirrel", "swan"),
    *("tulip", "turtle", "violin", "walnut", "whale", "wheel", "windmill", "wolf"),
    "zebra",
)

_QUESTIONS = (
    "Which emblem belongs to {key}?",
    "What does the seal of {key} show?",
    "In the register of emblems, what stands beside the name {key}?",
    "A letter for {key} arrives: what is printed on the envelope?",
    "{key} has one emblem. Which?",
    "Travellers know the inn of {key} by its sign. What is on it?",
    "Before they enter, members of {key} draw something on the door. What?",
    "Name the figure on the coins of {key}.",
)
ROWS_PER_GROUP = 4
_KIND, _SEED_METHOD = "jaxcontam canary --chat", "hmac-sha256-value"


@dataclasses.dataclass(frozen=True, slots=True)
class KeyedGroup:
    """Rows that share a key and a value; `questions` depend on the key alone."""

    questions: tuple[str, ...]
    value: str


@public
def keyed_canary(
    model: Any,
    rows: str | Path,
    seed_file: str | Path,
    *,
    tokenizer: Any = None,
    dtype: Dtype = "float32",
    template: str | None = None,
    new_tokens: int = NEW_TOKENS,
    min_effect: float = MIN_KNOWN,
    seed: int = 0,
    progress: Progress | None = None,
    command: Sequence[str] = ("canary",),
) -> AuditResult:
    """Ask a model for the values of keyed rows; needs its answers alone.

    Null hypothesis: the model never saw the rows. Values were drawn from the seed, so
    each is then uniform and independent of every answer: the sum of right answers has
    a known law, without assumptions. Silence is no evidence: a model may know values
    and decline to say them.

    Args:
        model: A directory, hub name, `api:URL#NAME`, a Flax decoder in memory, or an
            opened `PromptedModel`.
        rows: The file that `canary --make --chat` wrote.
        seed_file: Its seed file.
        tokenizer: The fast tokenizer of a model in memory.
        dtype: Matmul precision of a directory.
        template: What is asked, with `{question}` in it (default: the question).
        new_tokens: Most tokens of an answer; a model that thinks first needs more.
        min_effect: Share of known groups that `no evidence` must be able to find.
        seed: Seeds the Monte Carlo cross-check alone: answers are the likeliest ones.
        progress: Called with answers done and in all; by default a bar.
        command: The command line that asks.

    Raises:
        InputError: If the files do not belong together, the template is not one, a
            question does not fit into the context, or the model does not answer.
    """
    watch = Stopwatch()
    groups, released = read_keyed_rows(Path(rows), Path(seed_file))
    prompts = keyed_prompts(groups, template)
    with open_prompted(model, tokenizer=tokenizer, dtype=dtype) as opened:
        check_fits(opened, prompts, new_tokens)
        with default_bar(progress, "asking for values") as bar:
            found = opened.completer.complete(
                prompts, max_tokens=new_tokens, progress=bar
            )
        answers = [one for (one,) in found]
        notes = list(opened.notes())
    named = [value_of(one) for one in answers]
    n_refused = sum(bool(one.refused) for one in answers)
    n_none = named.count(None) - n_refused
    for n, words in ((n_refused, "were refused"), (n_none, "name none of the values")):
        if n:
            notes.append(f"{n} of {len(answers)} answers {words}, and count as wrong")
    bits = len(groups) * math.log2(len(VALUES))
    sealed = commitment(Path(seed_file), made=released.made, bits=bits)
    by_group = np.array(named, object).reshape(len(groups), -1)
    scores = chat_rows(groups, by_group.tolist())
    result = OrderResult(
        benchmark=printable(Path(rows).stem),
        fingerprint=released.released_digest,
        content_digest=released.content_digest,
        order_provenance=RELEASED,
        n_examples=released.n_examples,
        method=METHOD.name,
        primary=True,
        null=DESIGNED,
        validity="exact",
        n_strata=len(groups),
        n_orders=len(VALUES) - 1,
        numbers=METHOD.analyse(list(scores), seed),
        effect_unit=EFFECT_UNIT,
        commitments=(sealed,),
        warnings=(*notes, *search_warnings([sealed])),
    )
    report = watch.report(
        command,
        seed,
        decide([result], min_effect=min_effect),
        model=opened.info,
        device=opened.device,
        min_effect=min_effect,
    )
    return AuditResult(report, (Evidence(scores=scores),))


def keyed_prompts(groups: Sequence[KeyedGroup], template: str | None) -> list[str]:
    """Prompts for the values, group by group."""
    form = template or "{question}"
    if {field for _, field in template_pieces(form)} - {None} != {"question"}:
        raise InputError(
            f"--text needs {{question}} and no other field, got {form!r}",
            hint=r'such as "Question: {question}\nAnswer:"',
        )
    return [
        fill_template(form, {"question": words.format(question=question)}, "--text")
        for group in groups
        for question in group.questions
        for words in PROMPTS
    ]


def check_fits(model: PromptedModel, prompts: Sequence[str], new_tokens: int) -> None:
    """Refuse questions that a local model could not read whole, and still answer."""
    if model.read is None or model.context is None:
        return
    longest = max(len(model.read(prompt)) for prompt in prompts)
    left = model.context - longest
    if new_tokens > left:
        raise InputError(
            f"the longest question has {longest} tokens, which with {new_tokens} new "
            f"ones exceed the model's context of {model.context}",
            hint=f"--new-tokens {left} or fewer" if left > 0 else "a shorter template",
        )


def value_of(answer: Completion) -> str | None:
    """The first value that an answer names, thoughts left out; None if it names none.

    The rule treats all values alike, which keeps the test exact.
    """
    pattern = rf"(?i)\b({'|'.join(VALUES)})s?\b"
    found = re.search(pattern, without_thoughts(answer.text))
    return None if found is None else found[1].lower()


def chat_rows(
    groups: Sequence[KeyedGroup], answers: Sequence[Sequence[str | None]]
) -> np.ndarray:
    """Shares of answers that name each value of a group, its own first, as (G, V).

    None among the answers is no value, and has no part; a row without any value is 0.
    """
    rows = []
    for group, named in zip(groups, answers, strict=True):
        values = (group.value, *(value for value in VALUES if value != group.value))
        n_named = max(1, len(named) - named.count(None))
        rows.append([named.count(value) / n_named for value in values])
    return np.array(rows)


def _numbers(rows: Sequence[np.ndarray], seed: int) -> OrderNumbers:
    """`version_numbers`, with an effect, of all groups, that few answers can detect."""
    numbers = version_numbers(rows, seed)
    n_answered = sum(bool(row.any()) for row in rows)
    mde = detectable_share(n_answered, n_values=len(rows[0]))
    if mde is not None:
        mde = 1 - (1 - mde) * n_answered / len(rows)
    return dataclasses.replace(numbers, mde=mde)


def detectable_share(n_groups: int, *, n_values: int) -> float | None:
    """Smallest share of groups, each known or not, found with power 0.8 at 0.001.

    So many of the groups that were answered have to be right that chance reaches it
    once in a thousand; None where all of them are too few.
    """
    from scipy.special import betainc, betaincinv

    for right in range(1, n_groups + 1):
        # P(Binomial(n, q) >= k) is the incomplete beta function at q.
        if betainc(right, n_groups - right + 1, 1 / n_values) <= LEVEL:
            return float(betaincinv(right, n_groups - right + 1, 0.8))
    return None


def keyed_groups(seed: bytes, n_groups: int) -> list[KeyedGroup]:
    """Groups of a seed; keys and values are drawn apart, by HMAC-SHA256."""
    groups = []
    for number in range(n_groups):
        key = f"{_made_up(seed, number, 'first')} {_made_up(seed, number, 'second')}"
        places = [(number + i) % len(_QUESTIONS) for i in range(ROWS_PER_GROUP)]
        questions = tuple(_QUESTIONS[place].format(key=key) for place in places)
        value = VALUES[_drawn(seed, f"value {number}") % len(VALUES)]
        groups.append(KeyedGroup(questions, value))
    return groups


def make_keyed_rows(
    seed: bytes, n_groups: int, *, version: str, made: str
) -> tuple[bytes, SeedFile]:
    """The file to publish, a row a line in random order, and its seed file."""
    records = [
        json.dumps({"question": question, "answer": group.value})
        for group in keyed_groups(seed, n_groups)
        for question in group.questions
    ]
    records = [records[i] for i in release_order(records, seed)]
    data = "".join(f"{record}\n" for record in records).encode()
    return data, SeedFile(
        kind=_KIND,
        method=_SEED_METHOD,
        seed=seed.hex(),
        n_examples=len(records),
        content_digest=content_digest(records),
        released_digest=fingerprint(records),
        file_digest=sha256_of(data),
        jaxcontam=version,
        made=made,
    )


def read_keyed_rows(path: Path, seed_file: Path) -> tuple[list[KeyedGroup], SeedFile]:
    """The groups of a published file, which must be the one that the seed makes."""
    found = read_release(seed_file, kind=_KIND, method=_SEED_METHOD)
    seed, n_groups = bytes.fromhex(found.seed), found.n_examples // ROWS_PER_GROUP
    made, again = make_keyed_rows(
        seed, n_groups, version=found.jaxcontam, made=found.made
    )
    if again != found or not n_groups:
        raise InputError(f"{seed_file}: its seed and its digests do not agree")
    if read_text(path) != made.decode():
        raise InputError(
            f"{path}: not the file that {seed_file} made",
            hint="give the file as --make wrote it, whatever form was published",
        )
    return keyed_groups(seed, n_groups), found


def _drawn(seed: bytes, what: str) -> int:
    return int.from_bytes(hmac.digest(seed, what.encode(), "sha256"), "big")


def _made_up(seed: bytes, number: int, which: str) -> str:
    """A made-up word, one of a million."""
    left, word = _drawn(seed, f"{which} {number}"), ""
    for letters in ("bcdfghjklmnpqrstvwxz", "aeiou") * 3:
        left, letter = divmod(left, len(letters))
        word += letters[letter]
    return word.capitalize()


METHOD = VersionMethod(
    name="canary_chat",
    command="canary",
    in_random_places=False,
    null=DESIGNED,
    validity="exact",
    needs="only answers, no log-probabilities",
    analyse=_numbers,
    least_effects={EFFECT_UNIT: MIN_KNOWN},
    cost="12 answers per group",
    finds="keyed rows that were learned, in any order, in a form like that of the "
    "question",
    source="ours; random targets as DyePack, Cheng et al. 2025, arXiv:2505.23001",
    words=ProofWords(
        row="group",
        version="value",
        versions="values",
        seen="keyed rows seen; nothing else was tested",
        unseen="that the keyed rows were learned",
        more="more groups are needed, or a model that answers",
        meaning="A small p-value says that the model answers questions about made-up "
        "names with values that a secret seed drew. Only the published rows connect "
        "the two. It says nothing about other text. ",
        silence="A large p-value does not say that the rows were never read: few "
        "copies leave no trace, and a model may decline to answer, or know them only "
        "in another form of question.",
        assumed={
            DESIGNED: "nothing about the model or any text: each value was drawn at "
            "random from a recorded seed",
        },
        unchecked="since the seed drew keys and values",
        chance="in each of {n_strata} groups its own value and {n_orders} others would "
        "be named equally often; the summed share of right answers would reach the "
        "observed one with probability {p}",
        unit="groups answered right, above chance",
        null_caption="Right answers, in groups, and the same sum with a random value "
        "in place of each group's own.",
        evidence_caption="Where the evidence is: the share of right answers of each "
        "group.",
        limits="versions",
    ),
)


# Flags of secrets that are scored; answers take none of them.
_OF_SCORES = (
    *("held_out", "n_held_out", "kind", "prefix", "tokenizer", "context", "store"),
    *("mesh", "shard"),
)


def check_chat_flags(command: Canary) -> None:
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
            hint="give a share of the groups",
        )
    if command.make and detectable_share(command.make, n_values=len(VALUES)) is None:
        raise InputError(
            f"--make {command.make}: too few groups for p <= {LEVEL:g}, even if all "
            "were known",
            hint="use --make 32 to find a share of 20%",
        )
    keyed_prompts((), command.text)


def make_chat_files(rows: Path, seed_file: Path, n_groups: int) -> None:
    """Draw a seed, and write both files."""
    if rows.suffix != ".jsonl":
        raise InputError(f"{rows}: must end in .jsonl", hint="one row per line")
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
        "its date: it shows later that nothing was chosen after testing a model.",
    )


def ask_for_values(command: Canary) -> dict[str, Any]:
    """Ask, decide, write and print; returns the report."""
    model, rows, seed_file = command.model, command.chat, command.secret
    assert model is not None and rows is not None
    groups, release = read_keyed_rows(rows, seed_file)

    def folder(name: str, info: ModelInfo) -> Path:
        """Equal names mean equal questions to one model."""
        # Nothing but its address is known of a served model.
        asked = model if model.startswith(PREFIX) else info.fingerprint
        decides = (asked, command.dtype, command.text or "", command.new_tokens)
        digest = fingerprint([release.released_digest, *map(str, decides)])
        return command.folder("canary", name, digest)

    settings = ServerSettings(
        spending=Spending(command.limits), concurrency=command.concurrency
    )
    with open_prompted(
        model,
        dtype=command.dtype,
        journal=lambda name, info: Journal(folder(name, info) / "answers.jsonl"),
        settings=settings,
    ) as opened:
        check_fits(opened, keyed_prompts(groups, command.text), command.new_tokens)
        out = folder(opened.name, opened.info)
        make_folder(out)
        with progress_bar("asking for values", unit="answers/s") as progress:
            found = keyed_canary(
                opened,
                rows,
                seed_file,
                template=command.text,
                new_tokens=command.new_tokens,
                min_effect=command.least_effect,
                seed=command.seed,
                progress=progress,
                command=("canary", model, *flags_of(command)),
            )
    result = found.results[0]
    share = max(0.0, result.effect or 0.0)
    sentences = [
        f"{result.benchmark}: {result.verdict}, {p_of(result)} by an exact test of "
        f"{result.n_strata} groups; the model knows about {share:.0%} of them.",
        commitment_sentence(result) or "",
        *(f"{words}." for words in result.warnings),
    ]
    return shown(
        lambda: found.written(out),
        lambda console: console.say(*sentences),
        as_json=command.json,
    )
