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

    def complete(self, prompts, *, progress=None, n_samples=1, **how):
        how = {"temperature": 0.0, "seed": 0, "stop": ()} | how
        self.calls.append({"prompts": list(prompts), "n_samples": n_samples} | how)
        answers = []
        for i, prompt in enumerate(prompts):
            own = (self.answer(prompt, how["temperature"], k) for k in range(n_samples))
            whole = (
                one if isinstance(one, Completion) else Completion(text=one)
                for one in own
            )
            answers.append(tuple(whole))
            if progress is not None:
                progress((i + 1) * n_samples, len(prompts) * n_samples)
        return answers
