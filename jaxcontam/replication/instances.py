"""Instances of a partition: which are drawn, where each is cut in two, and the prompts.

Draws and cuts are functions of the seed and of the texts. The file's order does not
count, and the first ten of fifty instances are those that a draw of ten gives.
"""

import dataclasses
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.data.templates import field_of, is_missing, text_if_any
from jaxcontam.errors import InputError, unknown_name
from jaxcontam.replication.flags import Task
from jaxcontam.scoring.completer import without_thoughts

if TYPE_CHECKING:
    from jaxcontam.replication.flags import ReplicationDesign

UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
"""Characters of scripts without spaces between words, for a class of a pattern: Thai,
Lao, Japanese and Chinese. Each counts as a word."""

ANY_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
"""A word of any script."""

Cut = Literal["sentence", "inside", "pair"]
"""Start of the second piece: after a sentence of several, inside the only one, or
with the second text of a pair."""

TASKS: tuple[str, ...] = get_args(Task)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance: what the model is shown, and what it should write if it knows it.

    A `group` is a source that it has in common with others, as the file names it.
    """

    index: int
    first_piece: str
    second_piece: str
    label: str | None
    cut: Cut
    group: str | None = None


_WORD = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
# The last line of a prompt, which some models say again before they answer.
_HEADING = re.compile(
    r"(?i)\A[\s*_#]*(?:the\s+)?(?:rest|second piece|sentence 2)(?:\s+of\s+the\s+\w+)?"
    r"[*_]*:[*_]*"
)
# "Sure! Here is the rest:", before a line end or a quotation mark.
_LEAD = re.compile(r"\A[^\n:]{1,200}:[*_]*(?:\s*\n|\s*(?=[\"\u201c\u00ab`]))")
# Fewer words may stand in a second piece by chance.
_FEWEST_WITHIN = 4


def words_of(text: str) -> list[str]:
    """Words in lower case: letters and digits, or one sign of an `UNSPACED` script."""
    return [word for word, _ in _words_with_ends(text)]


def text_key(*pieces: str) -> str:
    """Equal for texts that differ in case and white space alone."""
    return " ".join(" ".join(pieces).casefold().split())


def new_piece(instance: Instance, text: str) -> str:
    """A completion without its thoughts, and without what it repeats of the prompt.

    That is a heading, such as `Rest:`, and the first piece with all that stands before
    it. The first text of a pair stays: the second one may begin with it.
    """
    text = _HEADING.sub("", without_thoughts(text))
    if instance.cut != "pair":
        text = _behind(instance, text)
    return _HEADING.sub("", text).strip()


def possible_pieces(instance: Instance, text: str) -> tuple[str, ...]:
    """`new_piece`, and that without a line that announces it, if any."""
    piece = new_piece(instance, text)
    announced = _LEAD.sub("", piece)
    if announced == piece:
        return (piece,)
    return piece, new_piece(instance, announced)


def _behind(instance: Instance, text: str) -> str:
    first = words_of(instance.first_piece)
    n = len(first)
    if not first or words_of(instance.second_piece)[:n] == first:
        return text
    found = _words_with_ends(text)
    words = [word for word, _ in found]
    last = len(words) - n if n >= _FEWEST_WITHIN else 0
    for start in range(last + 1):
        if words[start : start + n] == first:
            # The mark that ends the first piece stays, and is no word.
            return text[found[start + n - 1][1] :]
    return text


def _words_with_ends(text: str) -> list[tuple[str, int]]:
    return [(match[0].casefold(), match.end()) for match in _WORD.finditer(text)]


_PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("text1", "text2"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("sentence_A", "sentence_B"),
    ("question", "answer"),
    ("instruction", "output"),
    ("prompt", "completion"),
)
_TEXT_NAMES = (
    *("text", "content", "sentence", "review", "document", "article", "passage"),
    *("question", "problem", "prompt"),
)
_SUMMARY_NAMES = ("summary", "highlights", "abstract")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """Fields of texts and the label: of one text to cut, of a pair, or of no text.

    Without one the text is that of the example as it was loaded.
    """

    texts: tuple[str, ...] = ()
    label: str | None = None

    def texts_of(self, benchmark: Benchmark, index: int) -> tuple[str, ...]:
        """The text of an example, or both of a pair; "" where it is null."""
        if not self.texts:
            return (benchmark.texts[index],)
        row, where = benchmark.rows[index], f"{benchmark.name}: example {index + 1}"
        return tuple(text_if_any(name, row, where) or "" for name in self.texts)

    def label_of(self, benchmark: Benchmark, index: int) -> object:
        """The label of an example as the record has it; None without a label field."""
        if self.label is None:
            return None
        return field_of(
            benchmark.rows[index],
            self.label,
            f"{benchmark.name}: example {index + 1}",
            hint="--fields label=NAME must name a field of every record",
        )


def find_fields(benchmark: Benchmark, design: "ReplicationDesign") -> Fields:
    """The fields as they were named, or else usual names that the records have."""
    task, row, label = design.task, benchmark.rows[0], design.named("label")
    if label is None and row is not None and "label" in row:
        label = "label"
    has_text = design.text is not None
    first, second = design.named("first"), design.named("second")
    if first is not None and second is not None:
        if has_text:
            raise InputError(
                "--fields first=NAME excludes --text",
                hint="name two fields for pairs, or one text that is cut in two",
            )
        return Fields(texts=(first, second), label=label)
    if has_text:
        if task == "nli":
            raise InputError(
                "--task nli takes pairs, not one text",
                hint="name the fields with --fields first=NAME second=NAME",
            )
        return Fields(label=label)
    names = _PAIR_NAMES if task == "nli" else tuple((name,) for name in _TEXT_NAMES)
    if task in ("summary", "one-sentence"):
        names = (*((name,) for name in _SUMMARY_NAMES), *names)
    if row is None and task != "nli":
        return Fields(label=label)
    for texts in names:
        if not set(texts) <= set(row or ()):
            continue
        # The text of one record may be null.
        said = [(one or {}).get(texts[0]) for one in benchmark.rows]
        if len(texts) == 2 or any(isinstance(text, str) for text in said):
            return Fields(texts=texts, label=label)
    flags = "--text NAME"
    if task == "nli":
        flags = "--fields first=A second=B"
    has = "the examples are plain text" if row is None else f"it has: {', '.join(row)}"
    raise InputError(
        f"{benchmark.name}: no field of a known name ({has})",
        hint=f"name it with {flags}; known names: {', '.join(map('/'.join, names))}",
    )


# Between these shares of the words a text of several sentences is cut, if it can be.
_MIDDLE = (0.3, 0.7)
# The same where it is cut inside a sentence; the paper leaves 30 to 60 % to the model.
_INSIDE = (0.4, 0.7)
# A piece of fewer words says little, so no cut at a sentence leaves one.
_FEWEST_WORDS = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Instances that were drawn, and counts of what never is.

    Texts of one word or null and pairs with an empty side are too short; `n_elsewhere`
    counts texts that stand more than once in both files together.
    """

    instances: tuple[Instance, ...]
    n_rows: int
    n_too_short: int
    n_duplicates: int
    n_elsewhere: int
    fingerprint: str
    warnings: tuple[str, ...]


def draw_instances(
    benchmark: Benchmark,
    fields: Fields,
    design: "ReplicationDesign",
    *,
    elsewhere: Collection[str] = (),
) -> Drawn:
    """Draw k instances at random without replacement, and cut each in two.

    A file of fewer than k gives all that it has, with a warning. Texts of `elsewhere`,
    by `text_keys`, are never drawn.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, section 3.1. Their code cuts every text
        at one and the same share and joins its pieces with single spaces; here the
        share differs between texts, and line breaks stay.
    """
    k, seed, groups = design.sample, design.seed, None
    if (document := design.named("document")) is not None:
        groups = benchmark.groups(document, flag=f"--fields document={document}")
    # By content: texts, label and place of its first row, whatever the file's order is.
    rows: dict[str, tuple[tuple[str, ...], str, int]] = {}
    n_too_short = n_elsewhere = 0
    for index in range(len(benchmark)):
        texts = fields.texts_of(benchmark, index)
        is_short = len(texts) == 1 and len(texts[0].split()) < 2
        if is_short or not all(text.strip() for text in texts):
            n_too_short += 1
            continue
        key = text_key(*texts)
        if key in elsewhere:
            n_elsewhere += 1
            continue
        label = _label(fields.label_of(benchmark, index), design.label_names)
        row = texts, label, index
        rows[key] = min(rows.get(key, row), row)
    if not rows and n_elsewhere:
        raise InputError(
            f"{benchmark.name}: all its instances occur more than once in both files "
            "together",
            hint="give other instances, which cannot have been seen, as a control",
        )
    if not rows:
        raise InputError(
            f"{benchmark.name}: no text can be cut in two",
            hint="every text has a single word, or one side of every pair is empty",
        )
    drawn = sorted(rows.values(), key=lambda row: _digest(seed, "draw", *row[0]))[:k]
    instances: list[Instance] = []
    for texts, label, index in drawn:
        if len(texts) == 2:
            first, second, cut = texts[0].strip(), texts[1].strip(), "pair"
        else:
            pieces = cut_text(texts[0], seed=seed)
            assert pieces is not None
            first, second, cut = pieces
        one = Instance(
            index=index,
            first_piece=first,
            second_piece=second,
            label=label or None,
            cut=cut,
            group=None if groups is None else str(groups[index]),
        )
        instances.append(one)
    n_unlabelled = sum(one.label is None for one in instances) if fields.label else 0
    warnings = list(benchmark.left_out)
    if len(instances) < k:
        warnings.append(f"only {len(instances)} of {k} instances could be drawn")
    if n_unlabelled:
        warnings.append(f"{n_unlabelled} of {len(instances)} instances have no label")
    return Drawn(
        instances=tuple(instances),
        n_rows=len(benchmark),
        n_too_short=n_too_short,
        n_duplicates=len(benchmark) - n_too_short - n_elsewhere - len(rows),
        n_elsewhere=n_elsewhere,
        fingerprint=instances_fingerprint(instances),
        warnings=tuple(warnings),
    )


def text_keys(benchmark: Benchmark, fields: Fields) -> list[str]:
    """`text_key` of every example."""
    return [
        text_key(*fields.texts_of(benchmark, index)) for index in range(len(benchmark))
    ]


def instances_fingerprint(instances: Sequence[Instance]) -> str:
    """Digest of pieces, labels and cuts in their order, not of places."""
    content = [
        [one.first_piece, one.second_piece, one.label, one.cut] for one in instances
    ]
    words = json.dumps(content, ensure_ascii=True).encode()
    return "sha256:" + hashlib.sha256(words).hexdigest()


def cut_text(text: str, *, seed: int) -> tuple[str, str, Cut] | None:
    """Cut a text at a random sentence, or inside its only sentence at a random word.

    Both pieces keep their characters, but for space around the text and at the cut.
    None for fewer than two words.
    """
    text = text.strip()
    words = [word.start() for word in re.finditer(r"\S+", text)]
    if len(words) < 2:
        return None
    rng = np.random.default_rng(int.from_bytes(_digest(seed, "cut", text)))
    places = {place: number for number, place in enumerate(words)}
    most = len(words) - _FEWEST_WORDS
    starts = [p for p in sentence_starts(text) if _FEWEST_WORDS <= places[p] <= most]
    kind: Cut = "sentence" if starts else "inside"
    if starts:
        shares = {place: places[place] / len(words) for place in starts}
        low, high = _MIDDLE
        middle = [place for place, share in shares.items() if low <= share <= high]
        nearest = min(starts, key=lambda place: abs(shares[place] - 0.5))
        place = middle[rng.integers(len(middle))] if middle else nearest
    else:
        low, high = _INSIDE
        most = max(1, min(int(high * len(words)), len(words) - _FEWEST_WORDS))
        fewest = min(most, math.ceil(low * len(words)))
        place = words[rng.integers(fewest, most + 1)]
    return text[:place].rstrip(), text[place:], kind


def _label(value: object, names: Sequence[str]) -> str:
    """A label as the prompt shows it; "" for none, and for -1, which hides one."""
    if is_missing(value) or value == "" or str(value) == "-1":
        return ""
    if isinstance(value, bool) or not names:
        return value if isinstance(value, str) else json.dumps(value)
    text = str(value)
    if text in names:
        return f"{list(names).index(text)} ({text})"
    if not text.isdecimal() or int(text) >= len(names):
        raise InputError(
            f"label {text!r} has no name (there are {len(names)}: {', '.join(names)})",
            hint="name labels 0, 1, ... with --fields labels=A,B, in this order",
        )
    return f"{text} ({names[int(text)]})"


def _digest(seed: int, *words: str) -> bytes:
    return hashlib.sha256(json.dumps([seed, *words]).encode()).digest()


# The mark, closing quotes and brackets, and the space behind them. A mark with space
# before it ends no sentence, but one behind it does; a run of marks is tried but once.
_END = re.compile(
    r"""(?<![.!?\u2026])(?:(?<=\S)|[.!?\u2026])([.!?\u2026]++)["'\u201d\u2019)\]]*+\s+"""
)
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")
_ABBREVIATIONS = re.compile(
    "mr|mrs|ms|dr|prof|rev|gen|sen|rep|gov|capt|col|lt|sgt|st|jr|sr|vs|etc|inc|ltd|co|"
    "corp|dept|est|fig|figs|eq|vol|ed|eds|pp|sec|approx|ca|cf|al|jan|feb|mar|apr|jun|"
    "jul|aug|sep|sept|oct|nov|dec|mt|ave|blvd|rd|univ"
)
# Longer than any abbreviation, so a look back stays short in texts without spaces.
_LOOK_BACK = 24


def sentence_starts(text: str) -> list[int]:
    """Places at which a sentence begins, but for the first one.

    A sentence ends with a full stop, an exclamation or question mark or an ellipsis,
    before a space and what is no small letter; not after an abbreviation, an initial or
    letters with dots between them; and before a blank line.
    """
    starts = {
        match.end()
        for match in _END.finditer(text)
        if match.end() < len(text)
        and not text[match.end()].islower()
        and not _is_abbreviated(text, match)
    }
    starts |= {match.end() for match in _BLANK_LINE.finditer(text)}
    first = len(text) - len(text.lstrip())
    return sorted(start for start in starts if first < start < len(text))


def _is_abbreviated(text: str, end: re.Match[str]) -> bool:
    if end[1] != ".":
        return False
    before = text[max(0, end.start(1) - _LOOK_BACK) : end.start(1)].split()
    word = re.split(r"""["'(\[\u201c\u2018-]""", before[-1])[-1] if before else ""
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    has_dots = "." in word.strip(".")
    return is_initial or has_dots or bool(_ABBREVIATIONS.fullmatch(word.lower()))


_PLACES = ("split_name", "dataset_name", "input", "label")
PLACE = re.compile(r"\{(\w+)\}")
"""A place of a template."""

_ARMS = ("guided", "general")
_OWN = Path(__file__).parent / "prompts.toml"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """Both instructions of a task; the guided one names the dataset and the split."""

    task: str
    guided: str
    general: str
    version: str
    stop: tuple[str, ...] = ()

    @property
    def has_arms(self) -> bool:
        """False where both instructions are the same, so nothing can be compared."""
        return self.guided != self.general

    def guided_prompt(self, instance: Instance, **names: str) -> str:
        """The prompt that names `dataset_name` and `split_name` of the instance."""
        return _prompt(self.guided, instance, **names)

    def general_prompt(self, instance: Instance) -> str:
        """The prompt that asks for any continuation."""
        return _prompt(self.general, instance)


def load_prompts(task: str, path: Path | None = None) -> Prompts:
    """Instructions of a task: ours, or those of a .toml or .json file of this shape.

    Source:
        Golchin and Surdeanu, arXiv:2308.08493, table 3: its elements in other words.
    """
    if task not in TASKS:
        raise unknown_name("task", task, TASKS)
    where = "prompts.toml" if path is None else str(path)
    tables = _read(_OWN if path is None else path)
    table = tables.get(task)
    if not isinstance(table, dict):
        known = [name for name in TASKS if isinstance(tables.get(name), dict)]
        raise InputError(
            f"{where}: no templates of task {task!r} (it has: {', '.join(known)})",
            hint=f"add [{task}] with guided = ... and general = ...",
        )
    templates = {
        arm: _template(f"{where}: {task}.{arm}", table.get(arm)) for arm in _ARMS
    }
    # Only what tells the two arms apart may differ between them in this respect.
    if templates["guided"] != templates["general"]:
        if "{dataset_name}" not in templates["guided"]:
            raise InputError(f"{where}: {task}.guided: no place {{dataset_name}}")
        for place in ("dataset_name", "split_name"):
            if f"{{{place}}}" in templates["general"]:
                raise InputError(
                    f"{where}: {task}.general: has the place {{{place}}}",
                    hint="the general instruction must not name the partition",
                )
    stop = table.get("stop", tables.get("stop", []))
    if not isinstance(stop, list) or not all(s and isinstance(s, str) for s in stop):
        raise InputError(f"{where}: stop must be a list of texts, none empty")
    words = json.dumps([*templates.values(), *stop]).encode()
    digest = hashlib.sha256(words).hexdigest()[:12]
    name = tables.get("name") or Path(where).stem
    version = f"{name}/{task}@{digest}"
    return Prompts(task=task, version=version, stop=tuple(stop), **templates)


def _template(where: str, template: object) -> str:
    if not isinstance(template, str):
        raise InputError(f"{where}: must be a text")
    for name in PLACE.findall(template):
        if name not in _PLACES:
            raise InputError(
                f"{where}: unknown place {{{name}}}",
                hint="places: " + " ".join(f"{{{place}}}" for place in _PLACES),
            )
    if "{input}" not in template:
        raise InputError(f"{where}: no place {{input}}")
    for line in template.split("\n"):
        if "{label}" in line and "{input}" in line:
            raise InputError(
                f"{where}: {{label}} and {{input}} in one line",
                hint="put {label} on a line of its own, which is left out if an "
                "instance has no label",
            )
    return template.removeprefix("\n").rstrip("\n")


def filled(template: str, **values: str) -> str:
    """A template with its places filled; braces inside a value stay as they are."""
    return PLACE.sub(lambda place: values[place[1]], template)


def _prompt(template: str, instance: Instance, **names: str) -> str:
    if instance.label is None:
        lines = template.split("\n")
        template = "\n".join(line for line in lines if "{label}" not in line)
    label = instance.label or ""
    return filled(template, input=instance.first_piece, label=label, **names)


def _read(path: Path) -> Mapping[str, object]:
    if path.suffix not in (".toml", ".json"):
        raise InputError(f"{path}: prompts are a .toml or a .json file")
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as e:
        raise InputError(f"{path}: not readable ({e.strerror})") from e
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: byte {e.start}: not UTF-8") from e
    except (ValueError, RecursionError) as e:
        raise InputError(f"{path}: not {path.suffix[1:]} ({e})") from e
    if not isinstance(tables, dict):
        raise InputError(f"{path}: must hold tables of templates, one per task")
    if not isinstance(tables.get("name", ""), str):
        raise InputError(f"{path}: name must be a text")
    return tables
