"""What a model of our own writes after texts; a rerun repeats no finished prompt."""

import dataclasses
from collections.abc import Sequence

from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.generation import VERSION, Sampling, generate, prompt_ids
from jaxcontam.scoring.stored import Progress


def complete_texts(
    checkpoint: Checkpoint,
    prompts: Sequence[str],
    sampling: Sampling,
    journal: Journal,
    progress: Progress | None = None,
) -> list[tuple[str, ...]]:
    """Samples that follow each prompt.

    A prompt stands after the tokenizer's BOS or EOS, as a text does when it is scored.
    One that is too long for the context keeps its end.

    Args:
        checkpoint: The model; its stop ids are taken.
        prompts: Texts, at least one token each.
        sampling: How; without stop ids.
        journal: Where finished prompts are kept.
        progress: Told of finished prompts and of all.

    Returns:
        `n_samples` texts a prompt.

    Raises:
        ValueError: If `new_tokens` leaves no room for a prompt.
    """
    sampling = dataclasses.replace(sampling, stop_ids=checkpoint.stop_ids)
    tokenizer, prefix_id = checkpoint.tokenizer, checkpoint.prefix_id
    room = checkpoint.config.context - sampling.new_tokens
    encoded = tokenizer.encode_batch(list(prompts), add_special_tokens=False)
    ids = [prompt_ids(one.ids, prefix_id=prefix_id, room=room) for one in encoded]
    keys = [
        journal_key(
            "completion",
            VERSION,
            checkpoint.fingerprint,
            checkpoint.decoder.dtype,
            one.tolist(),
            dataclasses.asdict(sampling),
        )
        for one in ids
    ]
    # Copies of a text have the same samples, drawn once.
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    missing = [i for key, i in first.items() if key not in journal]
    missing.sort()
    done = len(prompts) - len(missing)
    if progress is not None:
        progress(done, len(prompts))
    for index, samples in generate(
        checkpoint.decoder, [ids[i] for i in missing], sampling
    ):
        i = missing[index]
        texts = [
            tokenizer.decode(sample.tolist(), skip_special_tokens=True)
            for sample in samples
        ]
        journal.add(keys[i], texts)
        done += 1
        if progress is not None:
            progress(done, len(prompts))
    return [tuple(journal[key]) for key in keys]
