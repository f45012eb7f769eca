"""What do the mean and variance for Min-K%++ add to log-probabilities alone?"""

from eval.speed.measure import interleaved
from eval.speed.subjects import SIZES, decoder_of, random_ids


def measure_moments(rounds: int, *, tiny: bool) -> dict:
    """Seconds with and without moments, and what they add, by model; 4 x 512 ids."""
    from jaxcontam.scoring.local import local_scorer

    found = {}
    for size in SIZES:
        decoder = decoder_of(size, tiny=tiny)
        plain, full = local_scorer(decoder), local_scorer(decoder, moments=True)
        shape = (2, 64) if tiny else (4, 512)
        ids = random_ids(decoder.config.vocab_size, [shape[1]] * shape[0], seed=0)
        timed = interleaved(
            {
                "logprobs": lambda plain=plain, ids=ids: plain.tokens(ids),
                "with_moments": lambda full=full, ids=ids: full.tokens(ids),
            },
            rounds,
        )
        found[size] = {
            "shape": shape,
            "seconds": timed.seconds,
            "added_share": timed.ratio("with_moments", "logprobs") - 1,
        }
    return found
