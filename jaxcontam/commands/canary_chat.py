"""`jaxcontam canary --chat`: make keyed rows, or ask a model for their values."""

import dataclasses
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxcontam import __version__
from jaxcontam.analyses.keyed_canary import (
    check_fits,
    keyed_canary,
    keyed_prompts,
)
from jaxcontam.analyses.prompted_model import ServerSettings, open_prompted
from jaxcontam.analyses.stopwatch import utc_now
from jaxcontam.commands.flags import flag_of, flags_of
from jaxcontam.commands.new_files import write_new_files
from jaxcontam.commands.publish import shown
from jaxcontam.data.benchmark import fingerprint
from jaxcontam.data.journal import Journal
from jaxcontam.data.keyed_rows import (
    ROWS_PER_GROUP,
    VALUES,
    make_keyed_rows,
    read_keyed_rows,
)
from jaxcontam.data.release import SEED_BYTES, commitment
from jaxcontam.errors import InputError
from jaxcontam.methods.canary_chat import detectable_share
from jaxcontam.progress import progress_bar
from jaxcontam.report.numbers import p_of
from jaxcontam.report.order_words import commitment_sentence
from jaxcontam.report.report_files import make_folder
from jaxcontam.results import ModelInfo, OrderResult
from jaxcontam.scoring.api.address import PREFIX
from jaxcontam.scoring.api.budget import Spending
from jaxcontam.stats.effect import LEVEL
from jaxcontam.terminal import Terminal

if TYPE_CHECKING:
    from jaxcontam.commands.canary import Canary

# Flags of secrets that are scored; answers take none of them.
_OF_SCORES = (
    *("held_out", "n_held_out", "kind", "prefix", "text_field", "tokenizer"),
    *("context", "batch_tokens", "store", "no_store", "mesh", "shard", "distributed"),
)


def check_chat_flags(command: "Canary") -> None:
    """Refuse flags that would change nothing, too few groups, and other templates."""
    for field in dataclasses.fields(command):
        name = field.name
        if name in _OF_SCORES and getattr(command, name) != field.default:
            raise InputError(
                f"{flag_of(name)} does not go with --chat", hint="leave it out"
            )
    if command.least_effect > 1:
        raise InputError(
            f"--min-effect must be at most 1 with --chat, got {command.least_effect}",
            hint="it is a share of the groups",
        )
    if command.make and detectable_share(command.make, n_values=len(VALUES)) is None:
        raise InputError(
            f"--make {command.make}: too few groups for p <= {LEVEL:g}, were all known",
            hint="--make 32 finds a share of 20 %",
        )
    keyed_prompts((), command.template)


def make_chat_files(rows: Path, seed_file: Path, n_groups: int) -> None:
    """Draw a seed, and write both files."""
    if rows.suffix != ".jsonl":
        raise InputError(f"{rows}: must end in .jsonl", hint="a row a line")
    data, release = make_keyed_rows(
        secrets.token_bytes(SEED_BYTES), n_groups, version=__version__, made=utc_now()
    )
    sealed = release.to_bytes()
    write_new_files([(seed_file, sealed, 0o600), (rows, data, 0o644)])
    Terminal().say(
        f"{rows}: {n_groups:,} groups of {ROWS_PER_GROUP} rows",
        f"{seed_file}: their seed, commitment {commitment(seed_file).sha256}",
        f"Put the rows of {rows} among those that you publish, in any order and under "
        f"any template, and keep {seed_file} to yourself. Publish the commitment with "
        "its date: it shows later that nothing was chosen after a look at a model.",
    )


def ask_for_values(
    command: "Canary", model: str, rows: Path, seed_file: Path
) -> dict[str, Any]:
    """Ask, decide, write and print; returns the report."""
    groups, release = read_keyed_rows(rows, seed_file)

    def folder(name: str, info: ModelInfo) -> Path:
        """Equal names mean equal questions to one model."""
        # Nothing but its address is known of a served model.
        asked = model if model.startswith(PREFIX) else info.fingerprint
        decides = (asked, command.dtype, command.template or "", command.new_tokens)
        digest = fingerprint([release.released_digest, *map(str, decides)])
        return command.folder("canary", name, digest)

    settings = ServerSettings(
        spending=Spending(command.api_options.limits), concurrency=command.concurrency
    )
    with open_prompted(
        model,
        dtype=command.dtype,
        journal=lambda name, info: Journal(folder(name, info) / "answers.jsonl"),
        settings=settings,
    ) as opened:
        check_fits(opened, keyed_prompts(groups, command.template), command.new_tokens)
        out = folder(opened.name, opened.info)
        make_folder(out)
        with progress_bar("asking for values", unit="answers/s") as progress:
            found = keyed_canary(
                opened,
                rows,
                seed_file,
                template=command.template,
                new_tokens=command.new_tokens,
                min_effect=command.least_effect,
                seed=command.seed,
                progress=progress,
                command=("canary", model, *flags_of(command)),
            )
    return shown(
        lambda: found.written(out),
        lambda console: console.say(*_sentences(found.results[0])),
        as_json=command.json,
    )


def _sentences(result: OrderResult) -> list[str]:
    share = max(0.0, result.effect or 0.0)
    return [
        f"{result.benchmark}: {result.verdict}, {p_of(result)} by an exact test of "
        f"{result.n_strata} groups, of which the model knows about {share:.0%}.",
        commitment_sentence(result) or "",
        *(f"{words}." for words in result.warnings),
    ]
