"""Result dataclasses of `jaxcontam unlearning`: rows of its `report.json`.

A missing number is None, and a warning says why.
"""

import dataclasses

from jaxcontam.results.row import ResultRow

CHUNKS, QUESTIONS = "chunks", "questions"
"""What is screened: parts of texts, or questions about them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScreenResult(ResultRow):
    """How many texts score alike before and after unlearning.

    A screen: a text that scores alike may have survived unlearning, or may never have
    been known to the first model.

    Attributes:
        method: `min_k`, which is primary, or `perplexity` beside it.
        task: `CHUNKS` or `QUESTIONS`.
        setting: Its parameter where it has one, such as `k=20%`; else "".
        n_texts: Texts that have a score.
        n_unscored: Texts without one.
        bound: A text is suspicious if its ratio lies between 1 / bound and bound.
        n_suspicious: Such texts.
        share: Share of suspicious texts among those with a score.
        share_low: Lower end of its 95 % interval (Wilson).
        share_high: Upper end.
        ratio_median: Median of the unlearned model's score over the original model's.
    """

    task: str
    setting: str = ""
    n_texts: int
    n_unscored: int = 0
    bound: float
    n_suspicious: int
    share: float
    share_low: float
    share_high: float
    ratio_median: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityResult(ResultRow):
    """How alike the unlearned model's samples and the true texts are.

    Means are over texts, of the mean over the samples of a text; intervals are of the
    bootstrap over texts, 95 %. Neighbouring chunks of one book are alike and count as
    texts of their own, so that intervals of few books are too narrow.

    Attributes:
        method: `rouge_l_recall`, which is primary, `embedding_cosine` or `judge`.
        task: `CHUNKS` (continuations) or `QUESTIONS` (answers).
        n_selected: Suspicious texts that were sampled from.
        n_unselected: Other texts that were, as a control.
        n_samples: Samples per text.
        n_unparsed: Answers of the judge that hold no number from 1 to 5.
        n_refused: Samples that the judge's server refused to read.
        selected: Mean over suspicious texts; None where there is none.
        selected_low: Lower end of its interval.
        selected_high: Upper end.
        unselected: Mean over the control; None where there is none.
        unselected_low: Lower end of its interval.
        unselected_high: Upper end.
        difference: `selected` minus `unselected`.
        difference_low: Lower end of its interval.
        difference_high: Upper end.
        above_elsewhere: `selected` minus what the same samples reach against the next
            suspicious text's truth; None for fewer than two. A beginning gives away its
            subject, so a model without memory is above 0, too.
        above_elsewhere_low: Lower end of its interval.
        above_elsewhere_high: Upper end.
        best: Highest value of one sample of a suspicious text.
    """

    task: str
    n_selected: int
    n_unselected: int
    n_samples: int
    n_unparsed: int = 0
    n_refused: int = 0
    selected: float | None
    selected_low: float | None
    selected_high: float | None
    unselected: float | None
    unselected_low: float | None
    unselected_high: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    above_elsewhere: float | None
    above_elsewhere_low: float | None
    above_elsewhere_high: float | None
    best: float | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedText:
    """A text before and after unlearning: a row of `texts.jsonl`.

    Attributes:
        id: Its place among the texts of its task.
        task: `CHUNKS` or `QUESTIONS`.
        source: File or book that it comes from.
        text: What both models score.
        scores: Score and model -> its value; None where the text has none.
        prompt: What was sampled from, or would be.
        truth: What should follow, of sampled texts.
        samples: What the unlearned model wrote.
        ratios: Screen -> score after unlearning over that before.
        suspicious: Screen -> whether the two are alike.
        rouge_l_recall: Likeness of each sample to the truth.
        embedding_cosine: The same by embeddings.
        judge: The same by a chat model.
        embedding_cosine_elsewhere: Likeness to what should follow another text.
        judge_elsewhere: The same by a chat model.
    """

    id: int
    task: str
    source: str
    text: str
    scores: dict[str, float | None]
    prompt: str
    truth: str = ""
    samples: tuple[str, ...] = ()
    ratios: dict[str, float | None]
    suspicious: dict[str, bool]
    rouge_l_recall: tuple[float | None, ...] = ()
    embedding_cosine: tuple[float | None, ...] = ()
    judge: tuple[float | None, ...] = ()
    embedding_cosine_elsewhere: tuple[float | None, ...] = ()
    judge_elsewhere: tuple[float | None, ...] = ()
