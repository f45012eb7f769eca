"""The functions that people call: any model and texts in, a frozen result out."""

import itertools
import math
import zlib

import numpy as np
import pytest

import jaxcontam
from jaxcontam.cli.main import main
from jaxcontam.errors import InputError
from jaxcontam.models.checkpoint import save_checkpoint
from jaxcontam.reports.report_files import read_document
from tests.support.membership_model import CONTEXT, fast_tokenizer, fresh_decoder

pytestmark = pytest.mark.unoptimised

N = 64


def texts(seed=0, n=N):
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(300)]
    return [" ".join(rng.choice(words, 8)) for _ in range(n)]


def unigram(text):
    """Nats of each character, the same wherever it stands: sums add up."""
    return -sum(2 + zlib.crc32(c.encode()) % 100 / 100 for c in text)


def reader(published, gain=3.0):
    """A function that has read `published`, and expects its order."""
    after = dict(itertools.pairwise(published))

    def log_likelihoods(pairs):
        found = []
        for context, continuation in pairs:
            last = context.rstrip("\n").split("\n")[-1]
            known = after.get(last) == continuation.rstrip("\n")
            found.append(unigram(continuation) + gain * known)
        return found

    return log_likelihoods


def bystander(pairs):
    """A function that has read nothing and heeds what stands before, somehow."""
    found = []
    for context, continuation in pairs:
        last = context.rstrip("\n").split("\n")[-1]
        noise = zlib.crc32(f"{last}|{continuation}".encode()) % 100 / 100
        found.append(unigram(continuation) - noise)
    return found


def test_function_that_read_the_file_is_found_and_nothing_is_printed(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    published = texts()
    result = jaxcontam.audit(reader(published), published, reference=bystander)
    assert result.verdict == "contaminated"
    assert result.p_value == result["direction"].p_value <= 1e-3
    # A reversal of runs of four undoes three of four boundaries of memory.
    assert result["direction"].effect == pytest.approx(3.0, abs=0.2)
    assert result.pretests and all(test.passed for test in result.pretests)
    assert capsys.readouterr() == ("", "")
    html = result._repr_html_()
    assert "contaminated" in html and "<script" not in html
    assert list(tmp_path.iterdir()) == []
    assert len(result.plot().axes) == 2


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"reference": bystander},
        {"order": "random", "tests": ["reversal", "direction"], "seed": 3},
    ],
)
def test_saved_result_is_a_report_that_verify_accepts(asked, tmp_path, capsys):
    published = texts(1)
    result = jaxcontam.audit(reader(published), published, **asked)
    page = result.save(tmp_path / "run")
    assert page.read_text().startswith("<!doctype html>")
    assert main(["verify", str(tmp_path / "run")]) == 0
    capsys.readouterr()


def test_unordered_texts_are_not_scored_and_say_so():
    result = jaxcontam.audit(reader([]), sorted(texts(2), key=len))
    assert result.verdict == "invalid design"
    printed = repr(result)
    assert "texts: invalid design, not scored: " in " ".join(printed.split())
    # Commands are not broken, so that they can be copied.
    lines = [line for line in printed.splitlines() if "jaxcontam audit" not in line]
    assert max(map(len, lines)) <= 80
    assert (result.p_value, result.results) == (None, ())
    assert not all(test.passed for test in result.pretests)
    assert result.why.startswith("the file itself points forward (")
    (step,) = result.next_steps
    # The model is no word of a command line.
    assert str(step).endswith("(reference=OTHER_MODEL, order='anyway')")
    assert "order='anyway'" in printed and "--" not in printed
    # A word that was given stays.
    again = jaxcontam.audit(reader([]), sorted(texts(2), key=len), order="random")
    assert "order=('random', 'anyway')" in str(again.next_steps[0])
    with pytest.raises(KeyError, match="direction"):
        result["direction"]


def test_a_pair_is_scored_at_its_seam_and_the_report_says_so():
    """A function counts four characters a token; 0 is the whole text."""
    asked = []

    def watched(pairs):
        # Few at once are asked to see whether a text's parts add up.
        asked.extend(pairs if len(pairs) > 2 else ())
        return bystander(pairs)

    sizes = {}
    for n in (3, 0):
        asked.clear()
        result = jaxcontam.audit(watched, texts(4), context_tokens=n, score_tokens=n)
        assert ("the first 3 tokens of an example" in result._repr_html_()) == (n > 0)
        assert not any(
            "like others in all" in words for words in result.results[0].warnings
        )
        # All examples share the w that they begin with, and the end of a line.
        sizes[n] = [max(len(pair[k]) for pair in asked) for k in (0, 1)]
    longest = max(map(len, texts(4))) + 1
    assert sizes == {3: [13, 13], 0: [longest, longest]}
    # A frame that one row lacks is scored, and nothing else.
    framed = [f"Tell me in one word, if you can: {text}" for text in texts(5)]
    one_without = jaxcontam.audit(
        bystander, [*framed[1:], texts(6)[0]], context_tokens=3, score_tokens=3
    )
    assert any(
        "like others in all" in words for words in one_without.results[0].warnings
    )


def test_a_suspicion_says_why_and_what_could_settle_it():
    published = texts(1)
    result = jaxcontam.audit(reader(published), published)
    assert result.verdict == "suspected"
    assert "Only a reference model" in result.why
    ways = [step.to_add for step in result.next_steps]
    assert ways == ["reference=OTHER_MODEL", "order='random'"]
    known = jaxcontam.audit(reader(published), published, order="random")
    assert known.verdict == "contaminated" and known.next_steps == ()


def test_one_order_test_with_any_engine():
    published = texts(3)
    row = jaxcontam.order_test(reader(published), published, test="adjacency", seed=1)
    assert row.method == "adjacency"
    assert row.p_value < 1e-6


def test_function_whose_numbers_do_not_add_up_is_told():
    def mean(pairs):
        return [unigram(own) / len(own) for _, own in pairs]

    (row, *_) = jaxcontam.audit(mean, texts(), tests="direction").results
    assert any("effects are not in nats" in words for words in row.warnings)


def test_not_finite_answer_names_its_example():
    known = texts()

    def log_likelihoods(pairs):
        texts = (own for _, own in pairs)
        return [math.nan if own[:9] == known[4][:9] else unigram(own) for own in texts]

    with pytest.raises(InputError, match=r"^texts: example 5: .* not finite"):
        jaxcontam.audit(log_likelihoods, known)
    with pytest.raises(InputError, match=r"^the reference model: .* not finite"):
        jaxcontam.audit(reader([]), known, reference=log_likelihoods)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model directory, its decoder, and a file of texts."""
    directory = tmp_path_factory.mktemp("model") / "tiny"
    decoder = fresh_decoder()
    save_checkpoint(decoder, fast_tokenizer(), directory)
    file = directory.parent / "file.txt"
    file.write_text("\n".join(texts(4, 40)) + "\n")
    return directory, decoder, file


SHORT = {"max_example_tokens": CONTEXT // 2}


def test_command_and_function_and_decoder_in_memory_agree_to_the_bit(
    folder, tmp_path, capsys
):
    directory, decoder, file = folder
    command = ["audit", str(directory), str(file), "--out", str(tmp_path / "out")]
    assert main([*command, "--max-example-tokens", str(CONTEXT // 2)]) == 0
    report = read_document(tmp_path / "out" / "report.json")
    by_name = jaxcontam.audit(directory, file, **SHORT)
    held = {"tokenizer": fast_tokenizer(), **SHORT}
    in_memory = jaxcontam.audit(decoder, texts(4, 40), **held)
    found = (report["results"], by_name.results, in_memory.results)
    for row, one, other in zip(*found, strict=True):
        assert row["log10_p"] == one.numbers.log10_p == other.numbers.log10_p
        assert row["verdict"] == one.verdict == other.verdict
    with pytest.raises(InputError, match="the reference is the model itself"):
        jaxcontam.audit(directory, file, reference=directory, **SHORT)


@pytest.mark.parity
def test_torch_model_in_memory_agrees_with_its_directory(folder):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    directory, _, file = folder
    model = transformers.AutoModelForCausalLM.from_pretrained(directory).train()
    tokenizer = fast_tokenizer()
    ours = jaxcontam.audit(directory, file, **SHORT)
    theirs = jaxcontam.audit(model, texts(4, 40), tokenizer=tokenizer, **SHORT)
    assert model.training
    for one, other in zip(ours.results, theirs.results, strict=True):
        assert other.effect == pytest.approx(one.effect, abs=1e-3)
        assert other.numbers.log10_p == pytest.approx(one.numbers.log10_p, abs=0.05)
    with pytest.raises(InputError, match="needs its fast tokenizer"):
        jaxcontam.audit(model, texts())
    # One late weight makes another model.
    before, again = (
        jaxcontam.load(model, tokenizer=tokenizer).fingerprint for _ in range(2)
    )
    with torch.no_grad():
        largest = max(model.parameters(), key=lambda one: one.numel())
        largest.view(-1)[-1] += 1
    after = jaxcontam.load(model, tokenizer=tokenizer).fingerprint
    assert before == again != after


def test_several_files_are_asked_by_name(tmp_path):
    paths = [tmp_path / f"file{i}.txt" for i in range(2)]
    for i, path in enumerate(paths):
        path.write_text("\n".join(texts(5 + i)) + "\n")
    asked = {"tests": "direction", "reference": bystander}
    result = jaxcontam.audit(reader(texts(5)), paths, **asked)
    assert result["file0", "direction"].verdict == "contaminated"
    assert result["file1", "direction"].verdict != "contaminated"
    with pytest.raises(ValueError, match="2 benchmarks"):
        _ = result.verdict
