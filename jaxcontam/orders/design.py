"""The design of an audit, fixed before anything is scored."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from jaxcontam.arguments import (
    NamedFields,
    check_fields,
    check_min_effect,
    check_names,
    check_seed,
    flag_of,
    words_of,
)
from jaxcontam.data.templates import RecordText
from jaxcontam.errors import InputError, nearest
from jaxcontam.errors import check_names as check_known
from jaxcontam.proof.flags import MIN_EFFECT
from jaxcontam.reports.flags import check_positive
from jaxcontam.scoring.seam import SEAM, Seam

if TYPE_CHECKING:
    from jaxcontam.orders.methods import AskedTest

RANDOM, ANYWAY = "random", "anyway"
"""Words of `--order`; all others are seed files."""

OPTIONS = "options"
"""The test of the order of each item's options."""

Turn = Literal["user", "assistant", "both"]


# No slots: the command joins these fields to those of devices.
@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditDesign(NamedFields, RecordText):
    """Tests, orders and texts of an audit; the fields are flags of `jaxcontam audit`.

    Raises:
        InputError: If fields exclude each other or are out of range; names the flag.
    """

    roles = ("options", "answer")
    tests: str | None = None
    """Order tests, comma-separated, the deciding one first (default: direction, or
    adjacency and direction if the order is known to be random; see: methods). NAME:N
    draws N random orders per stratum (default: 9; permutation 99; sharded_t 49; options
    3); options:fixed leaves right options in their places, sharded_t:shards=K takes K
    shards (50)."""
    order: tuple[str, ...] = ()
    """What you know about the order. random: you vouch that the deciding one (of the
    rows, or of each item's options if --tests options comes first) was drawn at random;
    the report says so. Or one seed file of `jaxcontam release` per benchmark, in the
    same order. anyway: also score files whose order fails its checks."""
    group_field: str | None = None
    """Permute only within equal values of this field."""
    block_field: str | None = None
    """Permute whole runs of equal values of this field, such as a shared passage."""
    text: str | None = None
    r"""Field that is the text of an example, or a template of fields in braces, such as
    "Question: {question}\nAnswer: {answer}" (default: the raw line)."""
    no_header: bool = False
    """Read the first row of a .csv or .tsv file as an example too; columns are called
    column_1, column_2, ..."""
    separator: str = "\n"
    """Text after each example, as in the training data. chat:user or chat:assistant
    puts each into that turn of the model's chat template, chat:both its question and
    answer into both."""
    context_tokens: int = SEAM.context_tokens
    """Last tokens of the example before that the model reads in direction and
    adjacency, whose memory lies at the seam; 0 reads it whole. A function or server
    without a tokenizer here counts four characters a token."""
    score_tokens: int = SEAM.score_tokens
    """First tokens of an example that these tests score, after those that all examples
    share; 0 scores it whole."""
    max_example_tokens: int | None = None
    """Cut longer examples, separator included."""
    limit: int | None = None
    """Use only the first N examples."""
    fields: tuple[str, ...] = ()
    """For --tests options, names of fields, if not common ones: options=A,B,C,D (or one
    that lists them), answer=NAME, which names the right option."""
    min_effect: float = MIN_EFFECT
    """Nats per boundary that a test must be able to find before it says `no
    evidence`."""
    seed: int = 0
    """Seeds every random choice."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_positive(self, "max_example_tokens", "limit")
        for name in ("context_tokens", "score_tokens"):
            if (value := getattr(self, name)) < 0:
                raise InputError(
                    f"{flag_of(name)} must be at least 0, got {value}",
                    hint="0 takes whole examples",
                )
        check_seed(self.seed)
        check_min_effect(self.min_effect)
        _ = self.asked
        if self.group_field is not None and self.group_field == self.block_field:
            raise InputError(
                "--group-field and --block-field name the same field",
                hint="choose two different fields: the group does not vary within a "
                "block",
            )
        if self.block_field is not None and self.tests_options:
            raise InputError("--block-field does not go with --tests options")
        if self.shuffled and self.seed_files and not self.decides_by_options:
            raise InputError(
                "--order random and a seed file exclude each other",
                hint="leave out random: a seed says more",
            )
        self.named("options")
        if self.fields and not self.tests_options:
            raise InputError("--fields goes with --tests options")
        if self.chat_turn is not None and (self.block_field or self.tests_options):
            raise InputError(
                f"--separator {self.separator} goes with no --block-field or --tests "
                "options",
                hint="leave out the other flag: the template writes whole examples",
            )
        if self.tests_options and self.text_field is not None:
            raise InputError(
                f"--text {self.text} leaves no options to --tests options",
                hint='use a template, such as "{question}\\n{options}"',
            )

    @property
    def asked(self) -> "tuple[AskedTest, ...]":
        """Tests to run, the deciding one first."""
        # JAX and SciPy are imported once the words have parsed.
        from jaxcontam.orders.methods import ADJACENCY, DIRECTION, asked_tests

        if self.tests is None:
            is_random = self.shuffled or self.seed_files
            both = (ADJACENCY.name, DIRECTION.name)
            return asked_tests(both if is_random else both[1:])
        found = asked_tests(self.tests.split(","))
        names = [test.name for test in found]
        if ADJACENCY.name in names and DIRECTION.name not in names:
            # Its pairs tell the direction, too.
            found += asked_tests([DIRECTION.name])
        return found

    @property
    def test_names(self) -> tuple[str, ...]:
        """Names of the tests to run."""
        return tuple(test.name for test in self.asked)

    def test(self, name: str) -> "AskedTest":
        """The test of one name."""
        return next(test for test in self.asked if test.name == name)

    @property
    def shuffled(self) -> bool:
        """True if the user vouches for the order that decides."""
        return RANDOM in self.order

    @property
    def score_anyway(self) -> bool:
        """True if files are scored whose order fails its checks."""
        return ANYWAY in self.order

    @property
    def seed_files(self) -> tuple[Path, ...]:
        """The secret seed of each file that was released."""
        return tuple(Path(word) for word in self.order if word not in (RANDOM, ANYWAY))

    @property
    def seam(self) -> Seam:
        """What pair tests score of each pair."""
        return Seam(self.context_tokens, self.score_tokens)

    @property
    def chat_turn(self) -> Turn | None:
        """The turn as which each example is read; None for plain text."""
        kind, _, turn = self.separator.partition(":")
        if kind != "chat":
            return None
        check_known("turn of --separator", (turn,), get_args(Turn))
        return cast(Turn, turn)

    @property
    def tests_options(self) -> bool:
        """True if options of items are moved as well."""
        return OPTIONS in self.test_names

    @property
    def decides_by_options(self) -> bool:
        """True if the order of options decides, so that `shuffled` speaks of it."""
        return self.test_names[0] == OPTIONS

    @property
    def tests_options_alone(self) -> bool:
        """True if no order of examples is tested."""
        return self.test_names == (OPTIONS,)

    @property
    def flags(self) -> tuple[str, ...]:
        """The fields that differ from their defaults, as the command line says them."""
        return words_of(self, [field.name for field in dataclasses.fields(AuditDesign)])

    def check_files(self, n_files: int) -> None:
        """Refuse a number of files that the design does not fit."""
        if not n_files:
            raise InputError("no benchmark file", hint="name at least one")
        for word in map(str, self.seed_files):
            # A seed file that is missing is named when it is read.
            if not Path(word).suffix and not Path(word).exists():
                raise InputError(
                    f"--order {word}: not random, anyway, or a seed file",
                    hint="separate words by blanks"
                    if "," in word
                    else nearest(word, (RANDOM, ANYWAY)).rstrip(),
                )
        n_seeds = len(self.seed_files)
        if n_seeds and n_seeds != n_files:
            raise InputError(
                f"--order names {n_seeds} seed files for {n_files} benchmarks",
                hint="give one per benchmark, in the same order",
            )

    def check_reference(self) -> None:
        """Refuse a reference model beside tests that take none."""
        from jaxcontam.orders.methods import methods_to_score

        tests = methods_to_score(self.test_names)
        if not any(method.words.takes_reference for method in tests):
            raise InputError(
                "--reference goes with direction, adjacency or options",
                hint="--tests direction",
            )


def design_of(**fields: Any) -> AuditDesign:
    """A design from keywords; `tests` and `order` may be a word or several."""
    check_names(AuditDesign, fields, "audit")
    tests, order = fields.get("tests"), fields.get("order")
    if isinstance(tests, Sequence) and all(isinstance(one, str) for one in tests):
        fields["tests"] = tests if isinstance(tests, str) else ",".join(tests)
    if isinstance(order, str | Path):
        order = (order,)
    if isinstance(order, Sequence):
        fields["order"] = tuple(
            # A path is no word, whatever its name.
            (f"./{one}" if str(one) in (RANDOM, ANYWAY) else str(one))
            if isinstance(one, Path)
            else one
            for one in order
        )
    return AuditDesign(**fields)
