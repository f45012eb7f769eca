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
        proves: Whether its `contaminated` is a proof, which alone is red.
    """

    limits: tuple[str, ...]
    assumed: tuple[str, ...] = ()
    proves: bool = False


OF_STUDY = PageWords(limits=(), proves=True)
"""Words of a page that has all its limits of its own."""

_LEVEL = (
    "A p-value is not the probability that the model is innocent. Of a thousand "
    "reports on models that never saw the files, at most one on average calls a file "
    "contaminated by chance, where what is assumed of the files holds, or the "
    "reference gains from their order what the model does."
)
_THIS_ONE = (
    "Another checkpoint, another version of the texts or another way to write them is "
    "another question."
)

ORDER = PageWords(
    limits=(
        "Direction holds for files that do not point forward themselves, as steps and "
        "stories do: a model that reads them expects an answer after its question, or "
        "six after five. A reference model that cannot have seen the file shows what "
        "reading alone gives, provided that it reads as well as the model. Beside one "
        "that gains just half as much from such a file, up to one clean model in "
        "twenty is called contaminated; beside one that gains less, more are.",
        "The detectable effect supposes that the whole file was read. If part of it "
        "was, less is found.",
        _LEVEL,
        _THIS_ONE,
    ),
    proves=True,
)
VERSIONS = PageWords(
    limits=(
        "The proof stands or falls with how the versions were made. If the published "
        "ones differ from the others in anything but chance, so may the model's taste.",
        "Contaminated does not say how often a text was read, and not that a score is "
        "too high because of it.",
        _LEVEL,
        _THIS_ONE,
    ),
    proves=True,
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
        "A threshold or a rate holds for texts like those that it was found on.",
        _THIS_ONE,
    ),
)
REPLICATION = PageWords(
    assumed=(
        "That the control cannot have been seen and is as easy to guess as the "
        "benchmark: of the same kind, sources and years. A reference model shows where "
        "it is not, as far as it guesses as well as the model; one that has seen the "
        "benchmark hides it.",
        "That instances, or sources where a field names them, are independent draws.",
        "That the server, where there is one, adds no search and no text of its own.",
    ),
    limits=(
        "Copies do not say where the model has them from: the benchmark, a page that "
        "quotes it, or the source that its author took them from.",
        "No evidence does not say that the partition was not seen. Models forget, and "
        "many are trained not to recite.",
        "A few instances were asked for. They say little about the share of the "
        "partition that is known, and other words or another temperature may bring "
        "other answers.",
        _THIS_ONE,
    ),
)
INFLATION = PageWords(
    assumed=(
        "That a model which saw neither side would differ between them as the "
        "references do, or, where the user vouches for the other items, not at all.",
        "That the references saw neither side and are one a family: references that "
        "are relatives of each other, and not of the model, differ too little.",
        "That items are independent draws, or groups of them where the report names "
        "groups: questions about one passage are one draw.",
        "That nobody trained on the other items, nor on texts made from them.",
    ),
    limits=(
        "What having read an item does for its rewrite as well is not counted: where a "
        "model learned the answer and not the wording, the true inflation is larger.",
        "No inflation found does not say that the items were not read. They may have "
        "been, to no effect on this score.",
        "Inflated does not say how: training on the items, on pages that quote them, "
        "or many choices made by this very score all have this effect.",
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
        "was drawn after the model was trained. Whether the published order is like a "
        "random one is what the checks of an audit look at.",
        "So many draws cannot show rates of rejection smaller than about one in their "
        "number.",
        _THIS_ONE,
    ),
)
