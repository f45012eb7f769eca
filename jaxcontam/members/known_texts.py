"""Read and plan: the texts of a membership run, its scores, and its prefixes.

`choose` needs no model, so that what cannot be run is refused before one is opened.

Dimension key
    N  texts of a run
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxcontam.data.benchmark import content_digest, fingerprint
from jaxcontam.data.documents import ASKED, LABELLED, compared, rows_of
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.members.labelled import (
    LABEL_FIELD,
    N_SNIPPETS,
    SNIPPET_WORDS,
    LabelledTexts,
    has_field,
    load_labelled,
    load_snippets,
)
from jaxcontam.members.score import Reading, ScoreMethod
from jaxcontam.members.scores import SCORES
from jaxcontam.members.sweep import sweep_methods
from jaxcontam.members.token_scores import AT_K, min_k_at

if TYPE_CHECKING:
    from jaxcontam.members.plan import Inputs
    from jaxcontam.members.text_model import TextModel

Source = str | Path | Sequence[str]
"""Texts, a file of them, a folder of .txt files, or `hf:ORG/NAME[...]:SPLIT`."""

TEXT, MEMBER, NONMEMBER = "text", "member", "nonmember"
"""What is known of a text: nothing, or the side on which it is."""

FEWEST = 10
"""Texts of a side below which no comparison is worth its name."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunTexts:
    """N texts, those in question first; `clusters` are their documents, or None."""

    name: str
    texts: tuple[str, ...]
    roles: tuple[str, ...]
    clusters: tuple[str, ...] | None
    sources: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Digest of the texts and their roles, in their order."""
        return fingerprint(
            [f"{r} {t}" for r, t in zip(self.roles, self.texts, strict=True)]
        )

    def with_role(self, role: str) -> np.ndarray:
        """(N,) bool: the texts of a role."""
        return np.array([one == role for one in self.roles])

    def texts_of(self, chosen_N: np.ndarray) -> list[str]:
        """Some of the texts."""
        return rows_of(self.texts, chosen_N)

    def clusters_of(self, chosen_N: np.ndarray) -> list[str] | None:
        """Documents of some of the texts; None where none are known."""
        return rows_of(self.clusters, chosen_N)


def read_texts(
    texts: Source | None,
    *,
    members: Source | None = None,
    nonmembers: Source | None = None,
    template: str | None = None,
    text_field: str | None = None,
    no_header: bool = False,
    label_field: str | None = None,
    document_field: str | None = None,
    limit: int | None = None,
    length: int | None = None,
    seed: int = 0,
) -> RunTexts:
    """Read texts with labels, or up to three sides.

    A folder gives random snippets of each of its .txt files, which is a document;
    `limit` and `length` are snippets of a file and words of a snippet then, else texts
    of a source, drawn by what they hold, and the words to which each is cut. Without
    `text_field` that of WikiMIA or BookMIA is read, or else the record as it stands.
    """
    check_sources(texts, members, nonmembers, label_field)

    def read(source: Source, *, with_labels: bool = False) -> LabelledTexts:
        if not isinstance(source, str | Path):
            found = tuple(source)
            return LabelledTexts(
                name="texts",
                texts=found,
                labels=None,
                clusters=None,
                rows=(None,) * len(found),
            ).drawn(limit)
        if Path(source).is_dir():
            return load_snippets(
                Path(source),
                n_snippets=limit or N_SNIPPETS,
                n_words=length or SNIPPET_WORDS,
                seed=seed,
            )
        return load_labelled(
            source,
            template=template,
            text_field=text_field,
            label_field=label_field if with_labels else None,
            cluster_field=document_field,
            length=length,
            with_labels=with_labels,
            allow_whole_rows=True,
            no_header=no_header,
        ).drawn(limit)

    if nonmembers is None:
        assert texts is not None
        one = read(texts, with_labels=True)
        return (
            _joined([(one, TEXT)], length)
            if one.labels is None
            else _labelled(one, length)
        )
    sides = ((texts, TEXT), (members, MEMBER), (nonmembers, NONMEMBER))
    return _joined(
        [(read(source), role) for source, role in sides if source is not None], length
    )


def check_sources(
    texts: object, members: object, nonmembers: object, label_field: object
) -> None:
    """Refuse sources of texts that contradict each other, before any is read."""
    if texts is None and (members is None or nonmembers is None):
        raise InputError(
            "no texts to score",
            hint="name a file of texts, or give --members and --nonmembers",
        )
    if members is not None and nonmembers is None:
        raise InputError(
            "--members without --nonmembers",
            hint="members are compared with texts that cannot have been seen",
        )
    if label_field is not None and nonmembers is not None:
        raise InputError(
            "--label-field and --nonmembers contradict each other",
            hint="labels stand in one file, or two files are the two sides",
        )


def _labelled(texts: LabelledTexts, length: int | None) -> RunTexts:
    assert texts.labels is not None
    sides = {label for label in texts.labels if label is not None}
    if len(sides) == 1:
        (only,) = sides
        raise InputError(
            f"{texts.name}: every label says {MEMBER if only else NONMEMBER}",
            hint="a comparison needs both sides; without labels, give known "
            "non-members with --nonmembers",
        )
    role = {True: MEMBER, False: NONMEMBER, None: TEXT}
    warnings = tuple(_how_read(texts, length))
    if n_unknown := texts.labels.count(None):
        warnings += (
            f"{texts.name}: {n_unknown} of {len(texts)} texts have no label: they take "
            "no part in the comparison",
        )
    return RunTexts(
        name=texts.name,
        texts=texts.texts,
        roles=tuple(role[label] for label in texts.labels),
        clusters=texts.clusters,
        sources=(texts.name,) * len(texts.texts),
        warnings=warnings,
    )


def _joined(parts: Sequence[tuple[LabelledTexts, str]], length: int | None) -> RunTexts:
    fields = {
        f"the whole row ({_names(p)})" if p.whole_rows else repr(p.text_field): p.name
        for p, _ in parts
        if p.whole_rows or p.text_field is not None
    }
    if len(fields) > 1:
        said = " and ".join(f"{field} in {name}" for field, name in fields.items())
        raise InputError(
            f"the text is {said}: two fields may hold two kinds of text",
            hint="name one that both files have with --text-field, or rename one",
        )
    warnings = [words for part, _ in parts for words in _how_read(part, length)]
    if len(parts) == 1 and has_field(parts[0][0].rows, LABEL_FIELD):
        warnings.append(
            f"the field '{LABEL_FIELD}' of {parts[0][0].name} is not read: "
            f"--label-field {LABEL_FIELD} takes it for members (1) and non-members (0)"
        )
    clusters: tuple[str, ...] | None = None
    if any(part.clusters is not None for part, _ in parts):
        # A document of one file is no document of another.
        counts = Counter(name for part, _ in parts for name in set(part.clusters or ()))
        if n := sum(count > 1 for count in counts.values()):
            warnings.append(
                f"{n} names of documents stand in more than one file and are taken for "
                "a document each; where texts of one document stand in two, no p-value "
                "holds: leave --document-field out if each text was put there by lot"
            )
        is_told = n > 0 or any(part.clusters is None for part, _ in parts)
        clusters = tuple(
            f"{number}/" * is_told + str(i if names is None else names[i])
            for number, (part, _) in enumerate(parts)
            for names in [part.clusters]
            for i in range(len(part.texts))
        )
    return RunTexts(
        name=parts[0][0].name,
        texts=tuple(text for part, _ in parts for text in part.texts),
        roles=tuple(role for part, role in parts for _ in part.texts),
        clusters=clusters,
        sources=tuple(part.name for part, _ in parts for _ in part.texts),
        warnings=tuple(warnings),
    )


def _how_read(texts: LabelledTexts, length: int | None) -> list[str]:
    found = [f"{texts.name}: {words}" for words in texts.left_out]
    if texts.whole_rows:
        found.append(
            f"{texts.name}: each row is a text as it stands, as in audit (it has: "
            f"{_names(texts)}); --text-field or --template chooses"
        )
    if length is not None and texts.n_short:
        found.append(
            f"{texts.name}: {texts.n_short} of {len(texts)} texts have fewer than "
            f"{length} words and are scored as they are"
        )
    return found


def _names(texts: LabelledTexts) -> str:
    return ", ".join(next(row for row in texts.rows if row is not None))


def check_sides(run: RunTexts, left_out_N: np.ndarray) -> None:
    """Refuse a side of which too little is left, before anything slow."""
    others_N = run.with_role(NONMEMBER)
    _check_documents(run, others_N)
    for role, sides in ((MEMBER, LABELLED), (TEXT, ASKED)):
        first_N = run.with_role(role)
        if not first_N.any() or not others_N.any():
            continue
        kept_N = ~left_out_N & (first_N | others_N)
        found = compared(
            run.texts_of(kept_N), first_N[kept_N], run.clusters_of(kept_N), sides
        )
        kept_N[kept_N] = found.kept
        for known, side_N in ((MEMBER, first_N), (NONMEMBER, others_N)):
            documents = run.clusters_of(kept_N & side_N)
            n = int((kept_N & side_N).sum())
            n = n if documents is None else len(set(documents))
            if n >= 2 or (known, role) == (MEMBER, TEXT):
                continue
            unit = "text" if documents is None else "document"
            shots = " beside those of a prefix" if (side_N & left_out_N).any() else ""
            more = ", or leave recall and con_recall out" if shots else ""
            raise InputError(
                f"{run.name}: {n} {unit}{'' if n == 1 else 's'} of {known}s{shots} can "
                "be compared, at least 2 are needed",
                hint="; ".join([*found.warnings, f"give more of them{more}"]),
            )


def _check_documents(run: RunTexts, nonmembers_N: np.ndarray) -> None:
    if run.clusters is None:
        return
    others = set(run.clusters_of(~nonmembers_N) or ())
    known = dict.fromkeys(run.clusters_of(nonmembers_N) or ())
    if split := [document for document in known if document in others]:
        raise InputError(
            f"{run.name}: {len(split)} documents hold non-members and other texts, "
            f"such as {split[0]!r}",
            hint="documents are compared as a whole; leave --document-field out where "
            "each text was given its label by lot",
        )


def draw_shots(run: RunTexts, role: str, n_shots: int, *, seed: int) -> np.ndarray:
    """Indices of the texts that stand before all others as a prefix.

    They are drawn from their side at random, whatever the order of the file, and are
    left out of every comparison: a text that stands in its own prefix is known to it.
    Where texts come from documents, the rest of the drawn documents is left out, too.
    """
    candidates = np.flatnonzero(run.with_role(role))
    seen: set[str] = set()
    distinct = []
    for i in candidates.tolist():
        if run.texts[i].strip() and run.texts[i] not in seen:
            seen.add(run.texts[i])
            distinct.append(i)
    if len(distinct) < n_shots + FEWEST:
        raise InputError(
            f"{run.name}: {len(distinct)} distinct {role}s, too few to take "
            f"{n_shots} of them as a prefix",
            hint=f"give more {role}s, or leave recall and con_recall out",
        )
    digest = content_digest([run.texts[i] for i in distinct])
    words = np.frombuffer(bytes.fromhex(digest.removeprefix("sha256:")), np.uint32)
    drawn = np.random.default_rng([seed, *words.tolist()])
    # Sorted by text, so that the draw does not depend on the order of the file.
    by_text = sorted(distinct, key=lambda i: run.texts[i])
    return np.array([by_text[j] for j in drawn.permutation(len(by_text))[:n_shots]])


def draw_company(
    run: RunTexts, left_out_N: np.ndarray, *, seed: int
) -> tuple[str, ...]:
    """For each text that takes part another one of its side, to stand before it.

    The distinct texts of a side in a random ring, so that each stands before one other
    and chance of a single text counts once. None where a side has a single text.
    """
    rng = np.random.default_rng([seed, 73])
    before: dict[tuple[str, str], str] = {}
    for role in dict.fromkeys(run.roles):
        texts = set(run.texts_of(run.with_role(role) & ~left_out_N))
        ring = rng.permutation(sorted(text for text in texts if text.strip())).tolist()
        if len(ring) < 2:
            return ()
        # A text without words has no score that counts.
        before |= {(role, text): ring[0] for text in texts}
        before |= {(role, ring[i - 1]): text for i, text in enumerate(ring)}
    return tuple(
        before[role, text]
        for role, text, is_out in zip(run.roles, run.texts, left_out_N, strict=True)
        if not is_out
    )


def left_out(run: RunTexts, shots: Sequence[int]) -> np.ndarray:
    """(N,) bool: texts that a prefix holds, with their copies and their documents."""
    shown = {run.texts[i] for i in shots}
    documents = set() if run.clusters is None else {run.clusters[i] for i in shots}
    return np.array(
        [
            text in shown or (run.clusters is not None and run.clusters[i] in documents)
            for i, text in enumerate(run.texts)
        ]
    )


AUTO, ALL = "auto", "all"
WEIGHTS: frozenset[Reading] = frozenset({"moments", "gradients"})
"""Readings of a model whose weights are here."""

# Readings that cost one more pass at most, or that their own flag asked for.
_CHEAP: frozenset[Reading] = frozenset({"moments", "lowercase", "reference", "corpus"})
_PREFIXES: tuple[tuple[Reading, str], ...] = (
    ("nonmember_prefix", NONMEMBER),
    ("member_prefix", MEMBER),
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChosenScores:
    """Scores of a run, those `named` one by one, and indices of each prefix's texts."""

    methods: tuple[ScoreMethod, ...]
    primary: str
    shots: Mapping[Reading, np.ndarray]
    named: frozenset[str]
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> list[int]:
        """Indices of all texts that stand in a prefix."""
        return [int(i) for some in self.shots.values() for i in some]

    def without(self, reading: Reading, note: str) -> "ChosenScores":
        """The same without the scores of a prefix."""
        return dataclasses.replace(
            self,
            methods=tuple(m for m in self.methods if reading not in m.reads),
            shots={key: some for key, some in self.shots.items() if key != reading},
            notes=(*self.notes, note),
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MembershipPlan:
    """Texts that a run scores, and with what; `left_out` (N,) stand in a prefix."""

    run: RunTexts
    chosen: ChosenScores
    left_out: np.ndarray
    inputs: "Inputs"
    model: "TextModel"
    seed: int

    @property
    def texts(self) -> list[str]:
        """The texts that are scored."""
        return self.run.texts_of(~self.left_out)


def check_ranges(k: float, fprs: Sequence[float]) -> None:
    """Refuse a share of tokens, or false-positive rates, that are none."""
    if not 0 < k <= 100:
        raise InputError(f"--k must be above 0 and at most 100, got {k:g}")
    if len(set(fprs)) < len(fprs):
        raise InputError(f"--fpr names a rate twice {tuple(fprs)}")
    for rate in fprs:
        if not 0 < rate < 1:
            raise InputError(f"--fpr must lie between 0 and 1, got {rate:g}")


def choose(
    run: RunTexts,
    scores: Sequence[str],
    available: Collection[Reading],
    *,
    primary: str | None = None,
    k: float = 20.0,
    sweep_k: bool = False,
    n_shots: int = 5,
    seed: int = 0,
) -> ChosenScores:
    """Choose scores, the one that decides, and the texts of prefixes.

    A word of `scores` may hold several names with commas between; `AUTO` is one pass or
    two. `available` is what the run can read besides the texts themselves. The score
    that decides is `primary`, else min_k, else the first; `k` is a percentage.
    """
    names = tuple(part for word in scores for part in word.split(",") if part)
    readings: set[Reading] = {"lowercase", "neighbours", *available}
    if draw_company(run, np.zeros(len(run.texts), bool), seed=seed):
        readings.add("own_file")
    readings |= {reading for reading, role in _PREFIXES if run.with_role(role).any()}
    methods = _methods(names, readings, k / 100, sweep=sweep_k)
    chosen = _primary(primary, methods, k / 100)
    if sweep_k and not (run.with_role(MEMBER).any() and run.with_role(NONMEMBER).any()):
        raise InputError(
            "sweep_k needs members and non-members",
            hint="give labels, or --members and --nonmembers",
        )
    shots: dict[Reading, np.ndarray] = {
        reading: draw_shots(run, role, n_shots, seed=seed)
        for reading, role in _PREFIXES
        if any(reading in method.reads for method in methods)
    }
    notes = ()
    if "moments" not in available and {AUTO, ALL} & set(names):
        lost = [row.name for row in SCORES.values() if "moments" in row.reads]
        notes = (
            f"{', '.join(lost)} left out: they read the distribution over the whole "
            "vocabulary, and the server gives log-probabilities of the texts alone",
        )
    return ChosenScores(
        methods=tuple(methods),
        primary=chosen,
        shots=shots,
        named=frozenset({*names} | ({primary} if primary else set())),
        notes=notes,
    )


def _methods(
    names: Sequence[str], readings: Collection[Reading], fraction: float, *, sweep: bool
) -> list[ScoreMethod]:
    if not names:
        raise InputError(
            "--scores names no score",
            hint=f"choices: {', '.join([*SCORES, AUTO, ALL])}",
        )
    wanted: set[str] = set()
    for name in names:
        if name in (AUTO, ALL):
            usable = set(readings) & _CHEAP if name == AUTO else set(readings)
            wanted |= {key for key, row in SCORES.items() if set(row.reads) <= usable}
        elif name in SCORES:
            wanted.add(name)
        else:
            raise unknown_name("score", name, [*SCORES, AUTO, ALL])
    chosen = [
        AT_K[name](fraction) if name in AT_K else row
        for name, row in SCORES.items()
        if name in wanted
    ]
    have = {method.name for method in chosen}
    swept = [method for method in sweep_methods() if method.name not in have]
    return [*chosen, *swept] if sweep else chosen


def _primary(name: str | None, methods: Sequence[ScoreMethod], fraction: float) -> str:
    names = [method.name for method in methods]
    min_k = min_k_at(fraction).name
    if name is None:
        return min_k if min_k in names else names[0]
    wanted = AT_K[name](fraction).name if name in AT_K else name
    if wanted not in names:
        raise InputError(
            f"--primary {name} is not among the scores ({', '.join(names)})",
            hint="name it after --scores, too, or choose one of these",
        )
    return wanted


def plan_membership(
    run: RunTexts,
    chosen: ChosenScores,
    model: "TextModel",
    inputs: "Inputs",
    *,
    seed: int,
) -> MembershipPlan:
    """Fit the prefixes to the model's context, and leave their texts out."""
    chosen = _fitted(run, chosen, model)
    left_out_N = left_out(run, chosen.shown)
    check_sides(run, left_out_N)
    prefixes = {
        reading: tuple(run.texts[i] for i in some)
        for reading, some in chosen.shots.items()
    }
    inputs = dataclasses.replace(
        inputs,
        nonmember_prefix=prefixes.get("nonmember_prefix", ()),
        member_prefix=prefixes.get("member_prefix", ()),
        company=draw_company(run, left_out_N, seed=seed),
    )
    return MembershipPlan(
        run=run,
        chosen=chosen,
        left_out=left_out_N,
        inputs=inputs,
        model=model,
        seed=seed,
    )


def _fitted(run: RunTexts, chosen: ChosenScores, model: "TextModel") -> ChosenScores:
    """Shots that fit before the longest text; `all` goes without where none does."""
    from jaxcontam.members.readings import fitting_shots

    scored = run.texts_of(~left_out(run, chosen.shown))
    if any("own_file" in method.reads for method in chosen.methods):
        longest = max(map(len, model.sequences(scored)))
        full = f"the longest text ({longest} tokens) fills the model's context"
        if longest >= model.context and "codec" in chosen.named:
            raise InputError(
                f"codec: {full}, so that none fits before it",
                hint="cut texts with --length, or leave codec out",
            )
        if longest >= model.context:
            chosen = chosen.without("own_file", f"codec left out: {full}")
    for reading, some in chosen.shots.items():
        fits = fitting_shots([run.texts[i] for i in some], scored, model)
        names = [method.name for method in chosen.methods if reading in method.reads]
        if not fits and not chosen.named & set(names):
            chosen = chosen.without(
                reading,
                f"{' and '.join(names)} left out: no known text fits the model's "
                "context before the longest text; --length would cut it",
            )
        elif 0 < len(fits) < len(some):
            shots: dict[Reading, np.ndarray] = {**chosen.shots, reading: some[fits]}
            note = (
                f"{len(fits)} of {len(some)} shots fit before the longest text for "
                f"{' and '.join(names)}"
            )
            chosen = dataclasses.replace(
                chosen, shots=shots, notes=(*chosen.notes, note)
            )
    return chosen
