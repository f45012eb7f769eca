"""Word lists and a small grammar: English-like text that no one has published.

Everything is drawn from a `random.Random`, whose single draws are ten times faster
than those of a NumPy generator; the same state gives the same text.
"""

import dataclasses
from random import Random


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


NAMES = listed(
    """
    Anselm Beatrix Corvin Delphine Edgar Fenella Gideon Hester Ivor Jocasta Kester
    Lavinia Magnus Nerissa Osric Petra Quentin Rosalind Silas Tamsin Ulric Verity
    Wystan Xanthe Yorick Zelda Alaric Bronwen Cedric Drusilla Evander Flora
    Godfrey Hilda Ingram Juno Kendrick Leonora Mortimer Nadia Oswin Perpetua
    Roland Sabina Tristan Ursula Vivian Winifred Ambrose Blanche Crispin Dorcas
    Emrys Felicity Gawain Honora Isidore Jessamy Lambert Muriel Neville Ottilie
    Piers Rowena
    """
)
PLACES = listed(
    """
    Alderwick Brackenford Coldharbour Dunmere Eastlow Farrowdale Greyhaven Hollin
    Ivybridge Kelmarsh Langrove Merrowby Northolme Oakley Pendrift Quarrington
    Ravenscar Saltmouth Thornbury Underhill Vexford Westerdale Yarrow Zennor
    Ashcombe Birchover Cragside Dovecote Elmswell Foxton Gullane Hartmoor
    """
)
ADJECTIVES = listed(
    """
    small large old new red blue green grey quiet loud heavy light broken clean
    narrow wide early late cold warm dry wet plain strange common rare sharp soft
    bright dark empty full simple careful steady sudden famous hidden local
    distant patient clever gentle rough yellow wooden golden silver ancient modern
    """
)
VERBS = listed(
    """
    open close paint carry follow repair collect measure move lift cover clean
    order deliver return count sort mark borrow check hand watch visit turn
    join reach pull push answer notice mention remember compare select describe
    examine remove replace store inspect gather protect display
    """
)
PLACED = listed(
    """
    near behind above below beside inside under before against across
    """
)

_TOPICS = {
    "sailing": "boat sail harbour anchor rope deck mast tide captain lighthouse keel",
    "baking": "oven flour loaf dough sugar butter recipe pastry crust baker whisk",
    "music": "violin melody drum choir tune chorus concert rhythm piano singer chord",
    "farming": "barn field tractor plough harvest orchard fence seed shepherd hay",
    "astronomy": "planet telescope comet orbit moon star eclipse crater galaxy lens",
    "law": "judge court witness contract lawyer statute clause jury appeal oath",
    "medicine": "nurse fever bandage clinic tablet surgeon vaccine wound ward pulse",
    "railways": "train signal platform engine carriage ticket tunnel driver whistle",
    "gardens": "rose hedge lawn spade tulip pond blossom gardener shrub trellis pot",
    "markets": "stall merchant coin basket bargain price scale customer crate purse",
    "chess": "pawn bishop knight castle opponent gambit board queen tournament clock",
    "weather": "storm cloud breeze frost rainbow thunder forecast drizzle hail gust",
    "pottery": "kiln clay glaze vase wheel bowl potter tile jug saucer mould",
    "mining": "shaft coal lantern ore pick seam miner quarry gravel drill cart",
    "printing": "press ink page type margin editor pamphlet paper binder cover proof",
    "forests": "oak squirrel path fern owl moss trunk ranger acorn stream log",
}
TOPICS = tuple(tuple(nouns.split()) for nouns in _TOPICS.values())
"""Nouns of each topic."""
TOPIC_NAMES = tuple(_TOPICS)
NOUNS = tuple(noun for nouns in TOPICS for noun in nouns)

_SYLLABLES = listed(
    """
    ba be bo bri ca ce cla da de dro el en fa fi flo ga ge gri ha he il ja ka ke
    kri la le lo lum ma me mi mor na ne ni no or pa pe pra qua ra re ri ro sa se
    si ska sto ta te ti tor tra u va ve vi wen xa ya yel za ze zi zor
    """
)


@dataclasses.dataclass(frozen=True, slots=True)
class Vocabulary:
    """What sentences are made of.

    Attributes:
        nouns: Nouns of one topic, of all of them, or of another language.
        verbs: In the present.
        adjectives: Any.
        names: Names of people.
    """

    nouns: tuple[str, ...] = NOUNS
    verbs: tuple[str, ...] = VERBS
    adjectives: tuple[str, ...] = ADJECTIVES
    names: tuple[str, ...] = NAMES


ANY = Vocabulary()
"""Words of all topics."""
OF_TOPIC = tuple(Vocabulary(nouns=nouns) for nouns in TOPICS)
"""Words of one topic each."""


def past(verb: str) -> str:
    """Simple past of a regular verb."""
    if verb.endswith("e"):
        return f"{verb}d"
    return (
        f"{verb[:-1]}ied"
        if verb.endswith("y") and verb[-2] not in "aeiou"
        else (f"{verb}ed")
    )


def one(noun: str) -> str:
    """With its article: `an old boat`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def thing(rng: Random, words: Vocabulary = ANY) -> str:
    """A noun, mostly with an adjective: `old boat`."""
    noun = rng.choice(words.nouns)
    return f"{rng.choice(words.adjectives)} {noun}" if rng.random() < 0.6 else noun


def sentence(rng: Random, words: Vocabulary = ANY) -> str:
    """A statement of 9 to 18 words with a full stop."""
    return f"{clause(rng, words)}."


def clause(rng: Random, words: Vocabulary = ANY) -> str:
    """A statement without its full stop."""
    verb, other = past(rng.choice(words.verbs)), past(rng.choice(words.verbs))
    first, second, third = (thing(rng, words) for _ in range(3))
    name, where = rng.choice(words.names), rng.choice(PLACED)
    form = rng.randrange(6)
    if form == 0:
        return f"The {first} {verb} the {second} {where} the {third}"
    if form == 1:
        return f"{name} {verb} {one(first)} and {other} it {where} the {second}"
    if form == 2:
        return f"Every {first} {where} the {second} was {verb} by {name}"
    if form == 3:
        return f"In {rng.choice(PLACES)} the {first} {verb} {where} {one(second)}"
    if form == 4:
        return f"{name} never {verb} the {first} because the {second} {other} it"
    return (
        f"{one(first).capitalize()} and {one(second)} were {verb} {where} the {third}"
    )


def question(rng: Random, words: Vocabulary = ANY) -> str:
    """A question of 8 to 14 words."""
    verb = rng.choice(words.verbs)
    first, second = thing(rng, words), thing(rng, words)
    name, where = rng.choice(words.names), rng.choice(PLACED)
    form = rng.randrange(5)
    if form == 0:
        return f"Which {first} {past(verb)} the {second} in {rng.choice(PLACES)}?"
    if form == 1:
        return f"Why did {name} {verb} the {first} {where} the {second}?"
    if form == 2:
        return f"Who {past(verb)} the {first} {where} the {second}?"
    if form == 3:
        return f"How many times did the {first} {verb} the {second}?"
    return f"What did {name} {verb} {where} the {first} before the {second}?"


def answer(rng: Random, words: Vocabulary = ANY) -> str:
    """A few words: `the old boat near Hollin`."""
    return f"the {thing(rng, words)} {rng.choice(PLACED)} {rng.choice(PLACES)}"


def pseudoword(rng: Random, n_syllables: int) -> str:
    """A word of no language."""
    return "".join(rng.choice(_SYLLABLES) for _ in range(n_syllables))


def language(number: int) -> Vocabulary:
    """Words of an invented language; the same number gives the same language."""
    rng = Random(f"language {number}")

    def words(n: int, ending: str) -> tuple[str, ...]:
        return tuple(
            pseudoword(rng, rng.choice((1, 2, 2, 3))) + ending for _ in range(n)
        )

    ends = [pseudoword(rng, 1)[-2:] for _ in range(3)]
    return Vocabulary(
        nouns=words(90, ends[0]),
        verbs=words(40, ends[1]),
        adjectives=words(40, ends[2]),
    )


def foreign_sentence(rng: Random, words: Vocabulary) -> str:
    """A sentence that has no English word in it."""
    nouns = [rng.choice(words.nouns) for _ in range(3)]
    adjectives = [rng.choice(words.adjectives) for _ in range(2)]
    verb = rng.choice(words.verbs)
    parts = [adjectives[0], nouns[0], verb, nouns[1], adjectives[1], nouns[2]]
    if rng.random() < 0.5:
        parts.insert(3, rng.choice(words.verbs))
    return " ".join(parts).capitalize() + "."
