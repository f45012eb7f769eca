"""Whether two models can be compared text by text, before either is loaded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxcontam.commands.unlearning_texts import Screened
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.errors import InputError

if TYPE_CHECKING:
    from jaxcontam.models.checkpoint import Identity


def check_pair(
    original: "Identity", unlearned: "Identity", tasks: Sequence[Screened]
) -> None:
    """Refuse two models whose scores of a text are of other tokens, or the same.

    Raises:
        InputError: If they are one model, put another token before a text, or cut a
            text into other tokens; names the first such text.
    """
    if original.fingerprint == unlearned.fingerprint:
        raise InputError(
            "ORIGINAL and UNLEARNED are the same model", hint="all ratios would be 1"
        )
    hint = "ratios need two models with one tokenizer"
    if original.prefix_id != unlearned.prefix_id:
        raise InputError(
            "ORIGINAL and UNLEARNED put different tokens before a text "
            f"({original.prefix_id} and {unlearned.prefix_id})",
            hint=hint,
        )
    if original.tokenizer.to_str() == unlearned.tokenizer.to_str():
        return
    for task in tasks:
        pair = (
            one.tokenizer.encode_batch(task.texts, add_special_tokens=False)
            for one in (original, unlearned)
        )
        for item, before, after in zip(task.items, *pair, strict=True):
            if before.ids != after.ids:
                raise InputError(
                    f"{item.source}: ORIGINAL and UNLEARNED read different tokens",
                    hint=hint,
                )


def run_name(
    original: "Identity", unlearned: "Identity", tasks: Sequence[Screened]
) -> str:
    """Folder of a run: another model on either side, or other texts, have another."""
    parts = [task.fingerprint for task in tasks]
    digest = fingerprint([*parts, original.fingerprint, unlearned.fingerprint])
    return f"{original.name}-{unlearned.name}-{digest[7:15]}"
