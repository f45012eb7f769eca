"""The design of an audit, fixed before anything is scored."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from jaxcontam.arguments import (
    check_fields,
    check_min_effect,
    check_names,
    check_seed,
    flag_of,
    words_of,
)
from jaxcontam.errors import InputError
from jaxcontam.orders import answer_options
from jaxcontam.orders.chat_turns import Turn
from jaxcontam.orders.methods import ADJACENCY, DIRECTION, methods_to_score
from jaxcontam.proof.verdict import MIN_EFFECT


# No slots: the command joins these fields to those of devices.
@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditDesign:
    """Tests, orders and texts of an audit; the fields are flags of `jaxcontam audit`.

    Raises:
        InputError: If fields exclude each other or are out of range; names the flag.
    """

    tests: str | None = None
    """Order tests, comma-separated, the deciding one first (default: direction and
    adjacency, which decides where the order is known to be random; see: methods)."""
    shuffled: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """You know that the order that decides was drawn at random: of the rows (adjacency
    decides), or where --tests options comes first of each item's options. The report
    quotes you."""
    score_anyway: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Also score files whose order fails its checks."""
    n_orders: int | None = None
    """Random orders a stratum (default: 9; permutation 99; sharded_t 49; options 3)."""
    group_field: str | None = None
    """Permute only within equal values of this field."""
    block_field: str | None = None
    """Permute whole runs of equal values of this field, such as a shared passage."""
    template: str | None = None
    r"""Text of an example, such as "Question: {question}\nAnswer: {answer}"."""
    text_field: str | None = None
    """Field that is the text (default: the raw line)."""
    no_header: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """The first row of a .csv or .tsv file is an example, too; its columns are called
    column_1, column_2, ..."""
    separator: str = "\n"
    """Text after each example, as in the training data."""
    chat_template: Turn | None = None
    """Read each example as the model's chat template writes it: as the user's turn, as
    the assistant's, or its question and its answer as both."""
    max_example_tokens: int | None = None
    """Cut longer examples, separator included."""
    limit: int | None = None
    """Take the first N examples, never a sample."""
    options_field: str | None = None
    """For --tests options: field of the options, or several: A,B,C,D (default: known
    names)."""
    answer_field: str | None = None
    """For --tests options: field that tells the right option (default: known names)."""
    fix_answer: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """For --tests options: right options keep their places, only wrong ones move."""
    seed_file: tuple[Path, ...] = ()
    """For files made by `jaxcontam release`: the secret seed of each, in their
    order."""
    min_effect: float = MIN_EFFECT
    """Nats a boundary that `no evidence` must have been able to find."""
    seed: int = 0
    """Seeds every random choice."""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("n_orders", "max_example_tokens", "limit"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(
                    f"{flag_of(name)} must be at least 1, got {value}",
                    hint=(
                        "use 9 (the default) or more; each costs one pass over the data"
                        if name == "n_orders"
                        else ""
                    ),
                )
        check_seed(self.seed)
        check_min_effect(self.min_effect)
        methods_to_score(self.test_names)
        if self.group_field is not None and self.group_field == self.block_field:
            raise InputError(
                "--group-field and --block-field name the same field",
                hint="choose two different fields: the group does not vary within a "
                "block",
            )
        if self.block_field is not None and self.tests_options:
            raise InputError("--block-field does not go with --tests options")
        if self.shuffled and self.seed_file and not self.decides_by_options:
            raise InputError(
                "--shuffled and --seed-file exclude each other",
                hint="leave out --shuffled: a seed says more",
            )
        for name in ("options_field", "answer_field", "fix_answer"):
            if getattr(self, name) and not self.tests_options:
                raise InputError(f"{flag_of(name)} goes with --tests options")
        if self.chat_template is not None:
            joins = self.separator != AuditDesign.separator or self.block_field
            if joins or self.tests_options:
                raise InputError(
                    "--chat-template goes with no --separator, --block-field, or "
                    "--tests options",
                    hint="leave out the other flag: the template writes whole examples",
                )
        if self.tests_options and self.text_field is not None:
            raise InputError(
                "--text-field leaves no options to --tests options",
                hint='use --template, such as "{question}\\n{options}"',
            )

    @property
    def test_names(self) -> tuple[str, ...]:
        """Tests to run, the deciding one first."""
        if self.tests is None:
            names = (DIRECTION.name, ADJACENCY.name)
            return names[::-1] if self.shuffled or self.seed_file else names
        names = [name.strip() for name in self.tests.split(",")]
        if ADJACENCY.name in names:
            # Its pairs tell the direction, too.
            names.append(DIRECTION.name)
        return tuple(dict.fromkeys(names))

    @property
    def tests_options(self) -> bool:
        """True if options of items are moved as well."""
        return answer_options.METHOD.name in self.test_names

    @property
    def decides_by_options(self) -> bool:
        """True if the order of options decides, so that `shuffled` speaks of it."""
        return self.test_names[0] == answer_options.METHOD.name

    @property
    def tests_options_alone(self) -> bool:
        """True if no order of examples is tested."""
        return self.test_names == (answer_options.METHOD.name,)

    @property
    def flags(self) -> tuple[str, ...]:
        """The fields that differ from their defaults, as the command line says them."""
        return words_of(self, [field.name for field in dataclasses.fields(AuditDesign)])

    def check_files(self, n_files: int) -> None:
        """Refuse a number of files that the design does not fit."""
        if not n_files:
            raise InputError("no benchmark file", hint="name at least one")
        if self.seed_file and len(self.seed_file) != n_files:
            raise InputError(
                f"--seed-file names {len(self.seed_file)} files for "
                f"{n_files} benchmarks",
                hint="give one per benchmark, in the same order",
            )

    def check_reference(self) -> None:
        """Refuse a reference model beside tests that take none."""
        tests = methods_to_score(self.test_names)
        if not any(method.words.takes_reference for method in tests):
            raise InputError(
                "--reference goes with direction, adjacency or options",
                hint="--tests direction",
            )


def design_of(**fields: Any) -> AuditDesign:
    """A design from keywords; `tests` may be a sequence, `seed_file` one path."""
    check_names(AuditDesign, fields)
    tests, seed_file = fields.get("tests"), fields.get("seed_file")
    if isinstance(tests, Sequence) and all(isinstance(one, str) for one in tests):
        fields["tests"] = tests if isinstance(tests, str) else ",".join(tests)
    if isinstance(seed_file, str | Path):
        seed_file = (seed_file,)
    if isinstance(seed_file, Sequence):
        fields["seed_file"] = tuple(
            Path(one) if isinstance(one, str) else one for one in seed_file
        )
    return AuditDesign(**fields)
