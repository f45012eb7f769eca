"""Embeddings of texts, samples of texts with a journal, and the judge's numbers."""

import jax
import numpy as np
import pytest

from jaxcontam.data.journal import Journal
from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.models.generation import Sampling
from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.completions import complete_texts
from jaxcontam.scoring.embedding import text_embeddings
from jaxcontam.scoring.similarity_judge import judge_similarities
from tests.api_server import chat, prompt_of, serving
from tests.unlearning_models import BOS, CONTEXT, fresh_decoder, word_tokenizer

pytestmark = pytest.mark.unoptimised

TEXTS = ["beno bist", "", "ka keno kor kist kun la leno", "beno bist"]
SAMPLING = Sampling(n_samples=2, new_tokens=5)


@pytest.fixture(scope="module")
def checkpoint():
    return Checkpoint(
        name="tiny",
        decoder=fresh_decoder(3),
        tokenizer=word_tokenizer(),
        prefix_id=BOS,
        fingerprint="sha256:tiny",
    )


def test_an_embedding_is_the_mean_hidden_state_of_length_one(checkpoint):
    found = text_embeddings(checkpoint, TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = checkpoint.tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            assert (vector == 0).all()
            continue
        with jax.default_matmul_precision("highest"):
            hidden = checkpoint.decoder(np.array([ids], np.int32))[0]
        mean = np.asarray(hidden, np.float64).mean(axis=0)
        # Float32 sums of another length.
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    assert found[0] @ found[3] == pytest.approx(1.0, abs=1e-5)


def test_a_text_beyond_the_context_is_cut(checkpoint):
    (found,) = text_embeddings(checkpoint, ["ka " * 200])
    ids = checkpoint.tokenizer.encode("ka " * 200, add_special_tokens=False).ids
    assert len(ids) > CONTEXT
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-5)


def test_a_prompt_that_is_finished_is_not_sampled_again(checkpoint, tmp_path):
    path = tmp_path / "j.jsonl"
    prompts = ["beno bist", "ka keno", "beno bist"]
    first = complete_texts(checkpoint, prompts, SAMPLING, Journal(path))
    assert first[0] == first[2] != first[1]
    # One line a distinct prompt.
    assert path.read_bytes().count(b"\n") == 2
    written = path.read_bytes()
    again = complete_texts(checkpoint, prompts[::-1], SAMPLING, Journal(path))
    assert again == first[::-1]
    assert path.read_bytes() == written


def test_the_judge_is_asked_once_a_sample_and_never_of_an_empty_one(tmp_path):
    grades = {"a}": 2, "b": 3}

    def answer(body, *_):
        sample = next(one for one in grades if f"B:\n{one}" in prompt_of(body))
        return chat(f"{grades[sample]}\nA reason.")

    triples = [("be{gin", "the {original}", one) for one in ("a}", " ", "b", "a}")]
    done = []
    with serving(answer) as (url, seen):
        for _ in range(2):
            found = judge_similarities(
                ApiModel(url, "m"),
                triples,
                Journal(tmp_path / "j.jsonl"),
                api_key=None,
                progress=lambda now, total: done.append((now, total)),
            )
            assert list(found.numbers) == [2, 1, 3, 2]
    assert len(seen) == 2
    for _, _, body in seen:
        assert "be{gin" in prompt_of(body) and "the {original}" in prompt_of(body)
    assert done[-1] == (4, 4)
