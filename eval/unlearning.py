"""Does a model that was tuned to forget texts still know them?

Question: section 7 of Shi et al. 2023, arXiv:2310.16789. Chunks of books, and questions
about them, whose Min-K% Prob is alike before and after unlearning are suspicious. Does
the unlearned model go on with them, or answer them, closer to the truth than it does
with the others? The paper finds 188 of some 1,000 chunks and 103 of 1,000 questions
suspicious; answers to these repeat .23 of the true one's words (ROUGE-L recall), those
to the others .10; 5.3 % of the continuations are graded 4 or 5 by GPT-4, those of 10
chunks among them; perplexity in place of Min-K% flags no chunk.
Command: `python -m eval.unlearning --original DIR --unlearned DIR --texts books/
--questions questions.jsonl`; the paper's models are meta-llama/Llama-2-7b-chat-hf and
microsoft/Llama2-7b-WhoIsHarryPotter. Hardware: what both models need, one at a time; a
killed run goes on. Wall time: seconds on CPU for the tiny pair of
tests/eval/test_unlearning.py. Headline: none of the paper's models; neither they
nor the books were at hand.

A text that the first model never knew is scored alike by both: a screen proves nothing,
the samples count. `--embedding-model DIR` takes SimCSE (torch), or a decoder's mean
hidden states. People check answers in `annotate.csv`: one sample of each question, of
either arm, in random order; a rerun reads what they filled in (exact or near: the
answer is right). Departures: the paper's people saw the answers that repeat the whole
true one; the judge is asked in our words and in one message, where table 9 of the paper
(appendix A) has two, of the system and of the user (`--judge-prompt FILE` takes both,
one below the other); suspicious texts stand beside a control of others, and beside what
the same samples share with another text's truth, since a beginning gives away its
subject.

Dimension key
    N  texts
    A  texts of one arm
    K  samples of a text
    R  resamples
"""

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from eval.study import Clock, Grid, finish_study, grouped, run_study
from jaxcontam.data.benchmark import read_text
from jaxcontam.data.journal import Journal
from jaxcontam.data.templates import field_of, fill_template, typed_newlines
from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import count_words, cut_words, load_labelled
from jaxcontam.members.run import membership
from jaxcontam.progress import progress_bar
from jaxcontam.replication.bleurt import open_embedder
from jaxcontam.replication.instances import Instance
from jaxcontam.replication.judges import JudgePrompt, is_copy, load_judge_prompt
from jaxcontam.replication.overlap import rouge_l
from jaxcontam.replication.recorded import is_filled, kept_sheet, read_sheet
from jaxcontam.reports.archive import number_or_none
from jaxcontam.reports.flags import check_positive, check_seed
from jaxcontam.reports.numbers import interval_words
from jaxcontam.scoring.completer import Completion
from jaxcontam.scoring.load import load
from jaxcontam.scoring.opened import OpenModel
from jaxcontam.scoring.prompted_model import open_judge, open_prompted
from jaxcontam.stats.bootstrap import bootstrap
from jaxcontam.stats.proportions import wilson_interval

CHUNKS, QUESTIONS = "chunks", "questions"
RATIO = 1.15
"""Suspicious: the ratio of the two scores lies between 1 / RATIO and RATIO."""
_SCORES = ("min_k", "loss")
# Texts of an arm that are sampled from, at most.
_MOST = 200
# Tokens of an answer, and of what a judge says.
_ANSWER_TOKENS, _GRADE_TOKENS = 64, 200
# Table 9 of the paper asks the same in other words.
_JUDGE = JudgePrompt.of(
    "unlearning-2",
    """\
Two texts go on from one beginning. Grade how much of the first text the second one
tells as well: who does what, where, in which order, and in which words.
5: the same from end to end, mostly in the same words
4: the same but for details
3: about half of it; give it only where neither 2 nor 4 will do
2: the same people or places, but other events
1: nothing in common
Write "Score: " with the grade, a whole number, and below it "Reason: " with one
sentence.

First text: {reference}

Second text: {candidate}""",
)
_GRADE = re.compile(r"(?:\A|[Ss]core)[\s:*]*([1-5])(?![\d.,]*\d|\s*-\s*\d)")

Measure = Callable[[int, int], Sequence[float]]
"""(a text, a text) -> K values of the first one's samples, the second's truth."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unlearning:
    """Screen texts by two models, and let the second one write."""

    original: str
    """The model before unlearning: directory or hub name."""
    unlearned: str
    """The model after it."""
    texts: str | None = None
    """Texts to be forgotten: a .txt file, a folder of them, or a table."""
    questions: str | None = None
    """Table of questions on it, with the fields `question` and `answer`."""
    words: int = 512
    """Words of a chunk; a shorter end of a text is left out."""
    prompt_words: int = 200
    """Words of a chunk that the unlearned model is given."""
    template: str = r"Question: {question}\nAnswer:"
    """Prompt of a question."""
    samples: int = 20
    """Samples of each text, of the model's own distribution."""
    embedding_model: str | None = None
    """Cosine of sample and truth by SimCSE, or by a decoder's mean hidden states."""
    judge: str | None = None
    """Chat model that grades samples from 1 to 5: api:URL#NAME, key in API_KEY."""
    judge_prompt: Path | None = None
    """Other words for it: a .txt file with {reference}, the true text, and {candidate},
    the sample; its answers begin with a grade or hold Score: and one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Matmul precision."""
    seed: int = 0
    """Seeds arms, samples and resamples."""
    out: Path = Path("runs/unlearning_study")
    """Folder of scores, samples and results."""

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_positive(self, "words", "prompt_words", "samples")
        if self.prompt_words >= self.words:
            raise InputError(f"--prompt-words must be below --words {self.words}")
        if self.texts is None and self.questions is None:
            raise InputError("nothing to screen", hint="give --texts or --questions")
        if self.judge_prompt is not None and self.judge is None:
            raise InputError("--judge-prompt needs --judge api:URL#NAME")
        _ = self.judge_question

    @property
    def judge_question(self) -> JudgePrompt:
        """The question that a judge is asked."""
        path = self.judge_prompt
        return _JUDGE if path is None else load_judge_prompt(path)

    def run(self) -> dict[str, Any]:
        """Run the study, write and print it."""
        clock, numbers = Clock.start(), run(self)
        by = grouped(numbers["results"], lambda row: "share" in row)
        grids = [
            Grid.of("Alike before and after", by[True], _SCREENS),
            Grid.of("Likeness of samples", by[False], _MEASURES),
        ]
        return finish_study(
            "unlearning", self, clock=clock, numbers=numbers, grids=grids
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """A text that both models score; the prompt that one continues, and the truth."""

    source: str
    text: str
    prompt: str
    truth: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """K samples of both arms' texts, and truths as long as these, by their indices."""

    selected: list[int]
    unselected: list[int]
    samples: dict[int, tuple[str, ...]]
    truths: dict[int, str]


def run(config: Unlearning) -> dict[str, Any]:
    """Screens and likenesses under `results`, and each text with both under `texts`.

    `judge_prompt` is the name of the judge's question with a digest of its words.
    """
    tasks: dict[str, list[Text]] = {}
    if config.texts is not None:
        tasks[CHUNKS] = read_chunks(config.texts, config.words, config.prompt_words)
    if config.questions is not None:
        tasks[QUESTIONS] = read_questions(config.questions, config.template)
    model = load(config.original, dtype=config.dtype)
    first = model.fingerprint, model.prefix_id, model.tokenizer
    before = _scores(model, tasks, config)
    # Two models at once may not fit.
    del model
    model = load(config.unlearned, dtype=config.dtype)
    _check_pair(first, model, tasks)
    after = _scores(model, tasks, config)
    journal = Journal(config.out / "samples.jsonl")
    results, rows = [], []
    for task, texts in tasks.items():
        ratios = {
            "min_k": score_ratios(before[task][:, 0], after[task][:, 0]),
            # The perplexity of e^1000 has no float, a ratio of two may.
            "perplexity": np.exp(
                np.minimum(before[task][:, 1] - after[task][:, 1], 700.0)
            ),
        }
        results += [
            screened(ratio_N) | {"task": task, "method": method}
            for method, ratio_N in ratios.items()
        ]
        suspicious_N = is_suspicious(ratios["min_k"])
        usable_N = np.array(
            [bool(text.prompt.strip() and text.truth.strip()) for text in texts]
        )
        usable_N &= ~np.isnan(ratios["min_k"])
        arms = draw_arms(suspicious_N, usable_N, most=_MOST, seed=config.seed)
        sampled = _sampled(task, texts, arms, model, journal, config)
        measures = {"rouge_l_recall": _rouge(sampled)}
        if config.embedding_model is not None:
            measures["embedding_cosine"] = _cosine(sampled, config.embedding_model)
        if config.judge is not None:
            measures["judge"] = _grades(sampled, config, journal)
        if task == QUESTIONS and (people := _people(texts, sampled, config)):
            measures["people"] = people
        results += [
            likeness(sampled, measure, config.seed) | {"task": task, "method": method}
            for method, measure in measures.items()
        ]
        scores = np.concatenate([before[task], after[task]], axis=1)
        for i, text in enumerate(texts):
            row = {"task": task, **dataclasses.asdict(text)}
            row["scores"] = [number_or_none(value) for value in scores[i]]
            row["ratios"] = {name: number_or_none(r[i]) for name, r in ratios.items()}
            row["suspicious"] = bool(suspicious_N[i])
            if i in sampled.samples:
                row |= {"truth": sampled.truths[i], "samples": sampled.samples[i]}
                row |= {
                    method: [number_or_none(value) for value in measure(i, i)]
                    for method, measure in measures.items()
                }
            rows.append(row)
    asked = None if config.judge is None else config.judge_question.version
    return {"judge_prompt": asked, "results": results, "texts": rows}


def read_chunks(source: str, words: int, prompt_words: int) -> list[Text]:
    """Chunks of each text; a shorter end is left out, a shorter text is one chunk."""
    found = []
    for name, text in _whole_texts(source):
        chunks, rest = [], text.strip()
        while rest:
            chunks.append(cut_words(rest, words))
            rest = rest[len(chunks[-1]) :].lstrip()
        if len(chunks) > 1 and count_words(chunks[-1]) < words:
            chunks.pop()
        for chunk in chunks:
            prompt = cut_words(chunk, prompt_words)
            found.append(Text(name, chunk, prompt, chunk[len(prompt) :].lstrip()))
    if not found:
        raise InputError(f"{source}: no words", hint="nothing to screen in these texts")
    return found


def _whole_texts(source: str) -> Iterator[tuple[str, str]]:
    path = Path(source)
    if path.is_dir() or path.suffix.lower() == ".txt":
        files = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
        yield from ((file.stem, read_text(file)) for file in files)
    else:
        found = load_labelled(source, with_labels=False)
        yield from ((f"text {i}", text) for i, text in enumerate(found.texts, 1))


def read_questions(source: str, template: str) -> list[Text]:
    """Questions and their answers, a pair a row; no answer is null or ""."""
    table = load_labelled(source, text_field="question", with_labels=False)
    found = []
    for number, (text, row) in enumerate(zip(table.texts, table.rows, strict=True), 1):
        where = f"{source}: text {number}"
        answer = field_of(row, "answer", where, hint="it is the true answer")
        if not isinstance(answer, str | int | float | None):
            raise InputError(f"{where}: field 'answer' is neither text nor number")
        truth = "" if answer is None else answer
        truth = truth if isinstance(truth, str) else json.dumps(truth)
        prompt = fill_template(typed_newlines(template), {"question": text}, where)
        found.append(Text(where, text, prompt, truth))
    return found


def _scores(
    model: OpenModel, tasks: dict[str, list[Text]], config: Unlearning
) -> dict[str, np.ndarray]:
    """(N, 2) Min-K% and mean log-probability of each task's texts, nats."""
    texts = [text.text for task in tasks.values() for text in task]
    found = membership(
        model,
        texts,
        scores=_SCORES,
        store=config.out / "store",
        seed=config.seed,
    )
    values_N2 = found.table.values[:, [*map(found.table.names.index, _SCORES)]]
    ends = np.cumsum([len(task) for task in tasks.values()])[:-1]
    return dict(zip(tasks, np.split(values_N2, ends), strict=True))


def _check_pair(
    first: tuple[str, int | None, Any],
    model: OpenModel,
    tasks: dict[str, list[Text]],
) -> None:
    """Refuse one model twice, and two that read a text as other tokens."""
    fingerprint, prefix_id, tokenizer = first
    if fingerprint == model.fingerprint:
        raise InputError("--original and --unlearned are the same model")
    texts = [text.text for task in tasks.values() for text in task]
    before, after = (
        [one.ids for one in each.encode_batch(texts, add_special_tokens=False)]
        for each in (tokenizer, model.tokenizer)
    )
    if prefix_id != model.prefix_id or before != after:
        raise InputError(
            "--original and --unlearned read different tokens",
            hint="ratios need two models with one tokenizer",
        )


def score_ratios(original_N: np.ndarray, unlearned_N: np.ndarray) -> np.ndarray:
    """Mean log-probability after unlearning over that before, of the same texts.

    Above 1 for a forgotten text; 1 where both models are certain, inf where the
    original alone is, NaN without a score.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_N = np.abs(unlearned_N) / np.abs(original_N)
    return np.where(unlearned_N == original_N, 1.0, ratio_N)


def is_suspicious(ratio_N: np.ndarray) -> np.ndarray:
    """Texts whose ratio lies strictly within the bounds; never one of NaN."""
    return (ratio_N > 1 / RATIO) & (ratio_N < RATIO)


def screened(ratio_N: np.ndarray) -> dict[str, Any]:
    """Share of scored texts that are suspicious (95 % by Wilson)."""
    n_texts = int(np.count_nonzero(~np.isnan(ratio_N)))
    n_found = int(np.count_nonzero(is_suspicious(ratio_N)))
    if n_texts == 0:
        raise InputError("no text has a score", hint="texts need a token")
    low, high = wilson_interval(n_found, n_texts)
    return {
        "n_texts": n_texts,
        "n_suspicious": n_found,
        "share": n_found / n_texts,
        "share_low": low,
        "share_high": high,
        "ratio_median": number_or_none(np.nanmedian(ratio_N)),
    }


def draw_arms(
    suspicious_N: np.ndarray, usable_N: np.ndarray, *, most: int, seed: int
) -> tuple[list[int], list[int]]:
    """Indices of suspicious texts to sample from, and of others as a control."""
    rng = np.random.default_rng(seed)
    arms: list[list[int]] = []
    for wanted_N in (suspicious_N & usable_N, ~suspicious_N & usable_N):
        found = np.flatnonzero(wanted_N)
        if len(found) > most:
            found = np.sort(rng.choice(found, most, replace=False))
        arms.append(found.tolist())
    return arms[0], arms[1]


def _sampled(
    task: str,
    texts: Sequence[Text],
    arms: tuple[list[int], list[int]],
    model: OpenModel,
    journal: Journal,
    config: Unlearning,
) -> Sampled:
    chosen = sorted([*arms[0], *arms[1]])
    truths = [text.truth for text in texts]
    encoded = model.tokenizer.encode_batch(truths, add_special_tokens=False)
    longest = max(len(one.ids) for one in encoded)
    wanted = longest if task == CHUNKS else _ANSWER_TOKENS
    n_new = max(1, min(wanted, model.context // 2))
    cut = {}
    for i in chosen:
        ends = [end for _, end in encoded[i].offsets]
        cut[i] = truths[i][: ends[n_new - 1] if len(ends) > n_new else None]
    with (
        open_prompted(model, is_plain=True, journal=lambda *_: journal) as writer,
        progress_bar(f"sampling {task}", unit="texts/s") as progress,
    ):
        found = writer.completer.complete(
            [texts[i].prompt for i in chosen],
            max_tokens=n_new,
            temperature=1.0,
            n_samples=config.samples,
            seed=config.seed,
            progress=progress,
        )
    samples = [tuple(one.text for one in some) for some in found]
    return Sampled(*arms, dict(zip(chosen, samples, strict=True)), cut)


def _rouge(sampled: Sampled) -> Measure:
    """The share of the truth's words that a sample repeats in order."""
    return lambda i, j: [
        rouge_l(sampled.truths[j], sample).recall for sample in sampled.samples[i]
    ]


def _cosine(sampled: Sampled, model: str) -> Measure:
    """Cosine of the embeddings of a sample and of a truth."""
    embed = open_embedder(model).embed
    of_truth = dict(
        zip(sampled.truths, embed(list(sampled.truths.values())), strict=True)
    )
    written = embed([one for samples in sampled.samples.values() for one in samples])
    parts = np.split(written, max(1, len(sampled.samples)))
    of_samples = dict(zip(sampled.samples, parts, strict=bool(sampled.samples)))
    return lambda i, j: (of_samples[i] @ of_truth[j]).tolist()


def _grades(sampled: Sampled, config: Unlearning, journal: Journal) -> Measure:
    """Grades of a chat model; NaN where its answer holds none."""
    question = config.judge_question
    prompts = [
        question.asked(sampled.truths[i], sample)
        for i, samples in sampled.samples.items()
        for sample in samples
    ]
    with open_judge(config.judge or "", asked=[None], journal=journal) as judge:
        answers = judge.complete(prompts, max_tokens=_GRADE_TOKENS)
    found = iter(_GRADE.search(answer.text) for (answer,) in answers)
    grades = {
        i: [float(one[1]) if (one := next(found)) else np.nan for _ in samples]
        for i, samples in sampled.samples.items()
    }
    # Grades against another truth would double what the judge costs.
    return lambda i, j: grades[i] if i == j else [np.nan] * config.samples


def _people(
    texts: Sequence[Text], sampled: Sampled, config: Unlearning
) -> Measure | None:
    """People's word on the first sample of each text: 1 if it is right, 0 if not.

    None as long as nobody has filled in the sheet, which is then written.
    """
    shown = [
        Instance(
            index=i,
            first_piece=texts[i].prompt,
            # Who checks an answer needs the question.
            second_piece=f"{texts[i].prompt} {texts[i].truth}",
            label=None,
            cut="inside",
        )
        for i in sampled.samples
    ]
    written = [Completion(text=samples[0]) for samples in sampled.samples.values()]
    sheet = kept_sheet(shown, written, seed=config.seed, out=config.out)
    if not is_filled(sheet):
        return None
    found = read_sheet(sheet, shown, written, seed=config.seed).consensus
    said = {
        i: np.nan if label is None else float(is_copy(label))
        for i, label in zip(sampled.samples, found, strict=True)
    }
    return lambda i, j: [said[i] if i == j else np.nan]


def likeness(sampled: Sampled, measure: Measure, seed: int) -> dict[str, Any]:
    """Means over texts of the mean over their samples, with 95 % bootstrap intervals.

    Neighbouring chunks of one book are alike and count as texts of their own, so that
    intervals of few books are too narrow. `close` is the share of grades from 4.
    """
    selected = sampled.selected
    own_AK = [measure(i, i) for i in selected]
    own, others = _means(own_AK), _means([measure(i, i) for i in sampled.unselected])
    pairs = zip(selected, selected[1:] + selected[:1], strict=True)
    lift = _means(
        [np.subtract(measure(i, i), measure(i, j)) for i, j in pairs if i != j]
    )
    values = np.ravel(own_AK)
    seen = values[~np.isnan(values)]
    return {
        "n_selected": len(selected),
        "n_unselected": len(sampled.unselected),
        "selected": _interval(own, seed=seed),
        "unselected": _interval(others, seed=seed),
        "difference": _interval(own, others, seed=seed),
        "above_elsewhere": _interval(lift, seed=seed),
        "best": float(seen.max()) if len(seen) else None,
        "close": float((seen >= 4).mean()) if len(seen) else None,
    }


def _means(values_AK: Sequence[Sequence[float] | np.ndarray]) -> np.ndarray:
    """Mean over the samples of each text; texts without a value are left out."""
    rows = (np.array(row)[~np.isnan(row)] for row in values_AK)
    return np.array([row.mean() for row in rows if len(row)])


def _interval(
    own_A: np.ndarray, others_A: np.ndarray | None = None, *, seed: int
) -> tuple[float | None, float | None, float | None]:
    """A mean, or a difference of two, with its interval; None each without texts."""
    # The bootstrap is of two groups.
    pair = own_A, np.zeros(1) if others_A is None else others_A
    if not all(map(len, pair)):
        return None, None, None
    found = bootstrap(
        lambda a_RA, b_RA: a_RA.mean(axis=1) - b_RA.mean(axis=1), *pair, seed=seed
    )
    return found.statistic, found.low, found.high


_SCREENS = {
    "screen": "{r[task]}, {r[method]}",
    "texts": "{r[n_texts]}",
    "suspicious": "{r[n_suspicious]}",
    "share": lambda r: f"{r['share']:.1%}",
}
_MEASURES = {
    "samples": "{r[task]}, {r[method]}",
} | {
    name.replace("_", " "): lambda r, name=name: interval_words(*r[name])
    for name in ("selected", "unselected", "difference", "above_elsewhere")
}

if __name__ == "__main__":
    sys.exit(run_study("unlearning", Unlearning))
