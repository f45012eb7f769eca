"""What a reader knows and no file says: lists, roles, words that belong together."""

from eval.natural_order.words import listed

CYCLES = (
    (
        "en",
        "janvier février mars avril mai juin juillet août septembre octobre novembre "
        "décembre",
    ),
    ("am", "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag"),
    (
        "for case",
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi "
        "omicron pi rho sigma tau upsilon phi chi psi omega",
    ),
    ("at", "breakfast elevenses lunch tea dinner supper"),
    ("in room", "one two three four five six seven eight nine ten eleven twelve"),
    ("on", "do re mi fa sol la ti"),
    (
        "under",
        "Aries Taurus Gemini Cancer Leo Virgo Libra Scorpio Sagittarius Capricorn "
        "Aquarius Pisces",
    ),
    ("facing", "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune"),
    ("with the", "ace deuce trey knave queen king"),
    (
        "by crew",
        "Alfa Bravo Charlie Delta Echo Foxtrot Golf Hotel India Juliett Kilo Lima Mike "
        "November Oscar Papa Quebec Romeo Sierra Tango Uniform Victor Whiskey Xray "
        "Yankee Zulu",
    ),
    (
        "as in",
        "Genesis Exodus Leviticus Numbers Deuteronomy Joshua Judges Ruth Samuel Kings "
        "Chronicles Ezra Nehemiah Esther Job Psalms Proverbs Ecclesiastes",
    ),
    ("in", "red orange yellow green blue indigo violet"),
)
"""Lists that begin again at their end: the words before an item, and the items."""

ROTATIONS = tuple(
    listed(labels)
    for labels in (
        "BACKGROUND METHODS RESULTS",
        "Given When Then",
        "premise hypothesis label",
        "Claim Evidence Verdict",
        "Setup Exercise Verify Teardown",
        "Situation Task Action Outcome",
        "STRENGTHS WEAKNESSES OPPORTUNITIES THREATS",
        "thesis antithesis synthesis",
        "Context Query Reply",
        "North East South West",
    )
)
"""Labels that templates repeat."""

_CHAT = """
Hello, I am writing about | Good morning, this concerns | Hi there, last week I bought
| Dear team, we still use | Greetings, my question is about
+ Since then nothing works with | It broke when I moved | I cannot open
| Something is wrong with | There is a strange smell from
+ You could try to clean | Please first replace | Have you checked
| I would turn off | It may help to lift
+ Thank you, that mended | Great, now I can use | Many thanks, all is well with
| That was it, you saved | Wonderful, I no longer need
+ Glad to be of help with | You are welcome, enjoy | Any time, take care of
| A pleasure, I am closing the ticket on | Write again if you have trouble with
"""
_RECIPE = """
Gather | Buy | Fetch from the cellar | Measure out | Lay out on the table
+ Chop | Wash | Peel with a knife | Slice | Whisk in a bowl
+ Boil | Fry | Roast in the oven | Simmer | Stew for an hour
+ Serve | Plate | Garnish | Pour out | Bring to the guests
"""
_ABSTRACT = """
Little is known about | There is growing interest in | Much work has dealt with
| For decades people have relied on | It is common to find
+ The aim is to describe | We ask what explains | Here we set out to predict
| Our question concerns | We want to understand
+ We sampled and weighed | In a trial of two years we compared | We measured
| A panel of readers rated | Using old records we modelled
+ We found a marked rise in | There was no change in | The data show an effect of
| On average there was less of | Scores were higher with
+ These findings suggest a role for | We conclude that policy should protect
| In sum it seems wise to keep | This has implications for
| In future it is worth turning to
"""
_CODE = """
import | from base load | require | include the header | using namespace
+ class | struct | interface | record type | abstract base
+ def | func | async fn | static void | override public
+ assert | expect that | it should return | check equality of | test case for
"""
_PATIENT = """
This is a farmer of sixty who keeps | A woman of forty came in with
| The patient, a teacher, lives with | He is a retired clerk who owns
| We saw a child who plays with
+ For a month there was pain after | It began at night beside | She has felt dizzy near
| He complained of a cough from | The trouble started with
+ On touch the belly was soft as | The pulse was fast beside
| Both ears were clear of | No murmur was heard over | There was a swelling like
+ This pointed to a reaction to | It was taken for an infection from
| The findings fit an injury by | Most likely was a burn from
| We suspected an allergy to
+ He was given tablets and kept from | We operated and took out
| A drip was set up beside | She was told to avoid | They bandaged the limb with
+ After a week he went home to | At discharge she could again use
| A year later there was no trace of | All went well and he is back at
| In spring he died beside
"""
ROLES = tuple(
    tuple(
        tuple(" ".join(opening.split()) for opening in role.split("|"))
        for role in genre.split("+")
    )
    for genre in (_CHAT, _RECIPE, _ABSTRACT, _CODE, _PATIENT)
)
"""Genres, their roles in order, and how a row of each role may begin."""


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    words = listed(text)
    return tuple(zip(words[::2], words[1::2], strict=True))


ANSWERS = _pairs(
    """
    France Paris Japan Tokyo Egypt Cairo Peru Lima Kenya Nairobi Norway Oslo Greece
    Athens Cuba Havana Iran Tehran Spain Madrid Italy Rome Poland Warsaw Chile
    Santiago Ghana Accra Nepal Kathmandu Austria Vienna Hungary Budapest Finland
    Helsinki Ireland Dublin Portugal Lisbon Turkey Ankara Canada Ottawa Qatar Doha
    Senegal Dakar Bolivia Sucre Latvia Riga

    cows calves sheep lambs goats kids frogs tadpoles swans cygnets geese goslings
    deer fawns hens chicks eagles eaglets kangaroos joeys horses foals butterflies
    caterpillars seals pups cats kittens hares leverets eels elvers

    Shakespeare Hamlet Cervantes Quixote Homer Odyssey Virgil Aeneid Dante Inferno
    Goethe Faust Tolstoy Karenina Racine Phaedra Mozart Figaro Verdi Aida Bizet Carmen
    Wagner Parsifal Puccini Tosca Handel Messiah Picasso Guernica Rossini Tancredi

    thermometers temperature barometers pressure hygrometers humidity odometers mileage
    seismographs tremors speedometers velocity ammeters current sundials hours
    altimeters altitude protractors angles

    wine grapes cheese milk glass sand tofu soybeans chocolate cocoa denim cotton
    marzipan almonds cider apples tequila agave vellum calfskin gin juniper linen flax
    """
)
"""What is asked for, and its answer."""

CAUSES = _pairs(
    """
    rainfall flood spark blaze virus infection exercise sweat tickling laughter onions
    tears insult anger pothole puncture iceberg shipwreck drought famine earthquake
    rubble smoking cough sunshine sunburn caffeine insomnia boredom yawning dust
    sneezing nettles rash alcohol hangover sweets cavities speeding crash joke giggles
    overspending debt practice mastery kindness gratitude neglect decay moisture mildew
    saltwater rust lightning outage walkout shutdown burglary alarm sting swelling
    hunger faintness typo confusion heatwave wilting blizzard closure leak puddle
    overload breakdown poison death bribe scandal defeat grief victory parade betrayal
    revenge shortage inflation pollination fruit erosion landslide noise headache
    stress ulcer jealousy quarrel loneliness longing wealth luxury study diploma gossip
    embarrassment fertiliser growth deforestation extinction war refugees taxation
    protest spill stain avalanche burial thaw meltwater collision dent friction warmth
    invention patent ambition promotion laziness dismissal discount queue
    """
)
"""A cause, and its effect."""
