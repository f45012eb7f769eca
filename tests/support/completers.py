"""A completer whose answers a test writes down."""

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.replication.comparisons import ComparisonInputs
from jaxcontam.scoring.completer import Completion


def comparison_inputs(completer, **changes):
    """What a method of `--compare` is given, and to ask about `changes` alone."""
    fields = {"benchmark": Benchmark("b", (), ()), "fingerprint": "f"}
    fields |= {"dataset": "Quiz", "split": "test"}
    return ComparisonInputs(completer=completer, **fields | changes)


class Scripted:
    """Answers by a function of (prompt, temperature, place of the sample)."""

    name = "scripted"

    def __init__(self, answer):
        self.answer = answer
        self.calls = []

    def complete(
        self,
        prompts,
        *,
        max_tokens,
        temperature=0.0,
        n_samples=1,
        seed=0,
        stop=(),
        progress=None,
    ):
        self.calls.append(
            {
                "prompts": list(prompts),
                "max_tokens": max_tokens,
                "temperature": temperature,
                "n_samples": n_samples,
                "seed": seed,
                "stop": stop,
            }
        )
        answers = []
        for i, prompt in enumerate(prompts):
            answers.append(
                tuple(
                    one if isinstance(one, Completion) else Completion(text=one)
                    for one in (
                        self.answer(prompt, temperature, k) for k in range(n_samples)
                    )
                )
            )
            if progress is not None:
                progress((i + 1) * n_samples, len(prompts) * n_samples)
        return answers
