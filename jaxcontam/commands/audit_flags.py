"""Flags of `audit` that contradict each other or name nothing, told before all else."""

from typing import TYPE_CHECKING

from jaxcontam.commands.device_flags import check_device_flags
from jaxcontam.commands.flags import (
    check_positive,
    check_shared_flags,
    check_store_flags,
    first_token_choices,
)
from jaxcontam.errors import InputError
from jaxcontam.methods import (
    METHODS,
    adjacency,
    direction,
    methods_to_score,
    two_min,
)
from jaxcontam.methods.method import PairMethod

if TYPE_CHECKING:
    from jaxcontam.commands.audit import Audit

# Beside direction; where the order is known to be random they decide.
_TESTS_OF_EFFORT: dict[str, tuple[str, ...]] = {
    "quick": (),
    "standard": (adjacency.METHOD.name,),
    "thorough": (two_min.METHOD.name,),
}


def chosen_tests(tests: str | None, *, effort: str, known: bool) -> tuple[str, ...]:
    """Order tests that flags ask for, the deciding one first.

    Args:
        tests: Of `--tests`; None where it was left out.
        effort: Of `--effort`.
        known: The order is known to be random: by `--shuffled` or `--seed-file`.

    Raises:
        KeyError: If there is no such effort.
    """
    if tests is None:
        beside = _TESTS_OF_EFFORT[effort]
        names = (*beside, direction.METHOD.name)
        return names if known else (direction.METHOD.name, *beside)
    names = [name.strip() for name in tests.split(",")]
    if {adjacency.METHOD.name, two_min.METHOD.name} & set(names):
        # Its pairs tell the direction, too.
        names.append(direction.METHOD.name)
    return tuple(dict.fromkeys(names))


def check_audit(command: "Audit") -> None:
    """Refuse what cannot be run.

    Raises:
        InputError: Names the flag.
    """
    if command.n_orders is not None and command.n_orders < 1:
        raise InputError(
            f"--n-orders must be at least 1, got {command.n_orders}",
            hint="9 is the default; each more costs one pass over the data",
        )
    check_positive(command, "batch_tokens", "max_example_tokens", "limit")
    check_shared_flags(command.seed, command.min_effect)
    check_store_flags(command.store, command.no_store)
    check_device_flags(command, command.model)
    if command.price_per_hour is not None and not command.price_per_hour >= 0:
        raise InputError(
            f"--price-per-hour must be at least 0, got {command.price_per_hour}"
        )
    if not command.benchmark:
        raise InputError("no benchmark file", hint="name at least one")
    methods_to_score(command.test_names)
    first_token_choices(command.first_tokens)
    if command.group_field is not None and command.group_field == command.block_field:
        raise InputError(
            "--group-field and --block-field name the same field",
            hint="blocks of one value hold no group to permute within",
        )
    if command.block_field is not None and command.tests_options:
        raise InputError("--block-field does not go with --tests options")
    if command.shuffled and command.seed_file:
        raise InputError(
            "--shuffled and --seed-file exclude each other",
            hint="a seed says more: drop --shuffled",
        )
    if command.seed_file and len(command.seed_file) != len(command.benchmark):
        raise InputError(
            f"--seed-file names {len(command.seed_file)} files for "
            f"{len(command.benchmark)} benchmarks",
            hint="it takes one for each, in their order",
        )
    for name in ("options_field", "answer_field", "fix_answer"):
        if getattr(command, name) and not command.tests_options:
            flag = "--" + name.replace("_", "-")
            raise InputError(f"{flag} goes with --tests options")
    if command.tests_options and command.text_field is not None:
        raise InputError(
            "--text-field leaves no options to --tests options",
            hint='use --template, such as "{question}\\n{options}"',
        )
    if command.reference is not None and not any(
        isinstance(METHODS.get(method.name), PairMethod)
        for method in methods_to_score(command.test_names)
    ):
        raise InputError(
            "--reference goes with direction or adjacency",
            hint="--tests direction",
        )
