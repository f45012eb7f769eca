"""What holds for every report of a kind: what it assumes, what it leaves open.

Short sentences for people who have to decide something and know no statistics.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PageWords:
    """Words about a kind of report.

    Attributes:
        limits: What its verdict or its numbers do not show, one sentence or two each.
        assumed: What it rests on; empty where each result says so itself.
    """

    limits: tuple[str, ...]
    assumed: tuple[str, ...] = ()


_LEVEL = (
    "A p-value is not the probability that the model is innocent. Of a thousand "
    "reports on models that never saw the files, at most one on average calls a file "
    "contaminated by chance."
)
_THIS_ONE = (
    "Everything here is about the model and the files with the digests below. Another "
    "checkpoint, another version of the benchmark or another way to write its examples "
    "is another question."
)

ORDER = PageWords(
    limits=(
        "Contaminated means that the model saw this file in this order. It does not "
        "say how often, when in training, or who put it there, and not that a score on "
        "the benchmark is too high because of it.",
        "No evidence and inconclusive do not clear the model: single examples, other "
        "orders, rewordings and translations leave no trace in an order test. What "
        "could have been found is the number called detectable.",
        "The detectable effect supposes that the whole file was read. Of a file that "
        "was read in part less is found.",
        "An author who sorted the examples in a way that no check here looks for can "
        "make a model prefer the order without having seen it. Of direction that holds "
        "for files that point forward themselves, such as steps, stories and numbers.",
        _LEVEL,
        _THIS_ONE,
    )
)
VERSIONS = PageWords(
    limits=(
        "Contaminated means that the model saw these texts in their published "
        "versions. It does not say how often, and not that a score is too high because "
        "of it.",
        "Silence does not clear the model: other versions of the same texts leave no "
        "trace here, and a text that was read once or twice is easily forgotten.",
        "The proof stands or falls with how the versions were made. If the published "
        "ones differ from the others in anything but chance, so may the model's taste.",
        _LEVEL,
        _THIS_ONE,
    )
)
MEMBERSHIP = PageWords(
    assumed=(
        "That nothing but training tells the two sides apart: the same source, years, "
        "topics and lengths. Only a split drawn at random makes sure of it.",
        "That texts, or documents where a field names them, are independent draws.",
        "That the reference model, where one was asked, read neither side.",
    ),
    limits=(
        "Nothing here proves that one particular text was read. Even a high AUC leaves "
        "single texts uncertain.",
        "An AUC near 0.5 does not say that the texts were not read: what was read once "
        "among billions of words is hardly more familiar than what was not.",
        "A threshold or a rate holds for texts like those that it was found on, and "
        "for no others.",
        _THIS_ONE,
    ),
)
BOOKS = PageWords(
    assumed=(
        "That the books in question are like the known ones, seen or unseen, in all "
        "but having been read: the same years, languages and kinds of text.",
        "That the known books are what their labels say.",
    ),
    limits=(
        "A rate is not the share of a book that was read, and no proof against one "
        "book. Unread books show rates above zero.",
        "A book may be familiar by quotations, reviews and summaries alone.",
        "A low rate does not clear a book.",
        _THIS_ONE,
    ),
)
REPLICATION = PageWords(
    assumed=(
        "That an instance is long and particular enough for nobody to write its second "
        "piece by guessing. A control that the model cannot know shows whether that "
        "holds.",
        "That the server, where there is one, adds no search and no text of its own.",
    ),
    limits=(
        "Suspected and contaminated mean that instances come back word for word, or "
        "nearly; contaminated, that those of a control do not. It does not say where "
        "the model has them from: the benchmark, a page that quotes it, or the source "
        "that its author took them from.",
        "No evidence does not say that the partition was not seen. Models forget, and "
        "many are trained not to recite.",
        "A few instances were asked for. They say little about the share of the "
        "partition that is known.",
        "Other words, another temperature or another version of the model may bring "
        "other answers.",
        _THIS_ONE,
    ),
)
UNLEARNING = PageWords(
    assumed=(
        "That the first model knew the texts and the second is the same one after "
        "unlearning.",
        "That chunks are like each other: a screen compares each one's scores under "
        "the two models.",
    ),
    limits=(
        "A suspicious chunk is a place to look, no proof that it survived: a text that "
        "the first model never knew is scored alike by both.",
        "A chunk that is not suspicious may still come back under another prompt, or "
        "after a little more training.",
        "Likeness of a sample to the truth counts words. Read the samples.",
        _THIS_ONE,
    ),
)
CALIBRATION = PageWords(
    assumed=(
        "That the orders which were drawn are as good as random; they come from the "
        "seed below.",
    ),
    limits=(
        "Nothing here says whether the model saw the file: every order that was tested "
        "was drawn after the model was trained.",
        "It does not show that the published order is like a random one. The checks of "
        "an audit look at that.",
        "So many draws cannot show rates of rejection smaller than about one in their "
        "number.",
        _THIS_ONE,
    ),
)
_COMPARED = (
    "A verdict that changes from one checkpoint to the next may have crossed a level "
    "by a hair. Look at effects and intervals before you look for a cause.",
    "Each report was corrected for its own benchmarks. Who picks one model out of many "
    "should read the numbers over all tests.",
)
ORDER_COMPARISON = PageWords(
    limits=(
        "Models side by side are not ranked. A larger effect may come from more "
        "copies, a larger model, a later reading or another tokenizer, and a model "
        "without a verdict may be one that remembers less.",
        "Reports that were tested otherwise (other strata, orders, seeds, templates or "
        "files) answer other questions, even if their benchmarks have one name.",
        *_COMPARED,
    )
)
RANKING_COMPARISON = PageWords(
    assumed=MEMBERSHIP.assumed,
    limits=(
        "What the texts alone tell of their labels is the same for all models and "
        "stands in each report as a blind baseline. An AUC is worth what it has above "
        "that one.",
        "Models side by side are not ranked. A higher AUC may come from more copies, a "
        "larger model, a later reading or another tokenizer.",
        "Reports that were made otherwise (other scores, texts, labels or templates) "
        "answer other questions, even if their files have one name.",
        *_COMPARED,
    ),
)
