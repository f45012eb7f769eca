"""Embeddings of texts, and the cosine that they give."""

import functools

import jax
import numpy as np
import pytest

from jaxcontam.models.checkpoint import Checkpoint
from jaxcontam.replication.bleurt import (
    Embedder,
    embedding_measure,
    open_embedder,
    text_embeddings,
)
from tests.support.membership_model import fast_tokenizer
from tests.support.unlearning_models import BOS, CONTEXT, fresh_decoder, word_tokenizer

pytestmark = pytest.mark.unoptimised

TEXTS = ["beno bist", "", "ka keno kor kist kun la leno", "beno bist"]


def test_an_embedding_is_the_mean_hidden_state_of_length_one():
    model = {"decoder": fresh_decoder(3), "tokenizer": word_tokenizer()}
    model |= {"name": "tiny", "prefix_id": BOS, "fingerprint": "sha256:tiny"}
    checkpoint = Checkpoint(**model)

    def ids_of(text):
        return checkpoint.tokenizer.encode(text, add_special_tokens=False).ids

    long = "ka " * 200
    assert len(ids_of(long)) > CONTEXT, "which cuts it"
    *found, cut = text_embeddings(checkpoint, [*TEXTS, long])
    for text, vector in zip(TEXTS, found, strict=True):
        if not (ids := ids_of(text)):
            assert (vector == 0).all()
            continue
        with jax.default_matmul_precision("highest"):
            hidden = checkpoint.decoder(np.array([ids], np.int32))[0]
        mean = np.asarray(hidden, np.float64).mean(axis=0)
        # Float32 sums of another length.
        np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=1e-5)
    assert found[0] @ found[3] == pytest.approx(1.0, abs=1e-5)
    assert np.linalg.norm(cut) == pytest.approx(1.0, abs=1e-5)
    # An overlap is the cosine of two texts.
    embed = functools.partial(text_embeddings, checkpoint)
    measure = embedding_measure(Embedder("tiny", "sha256:tiny", embed))
    pairs = [(TEXTS[0], TEXTS[3]), (TEXTS[0], TEXTS[2]), ("ka", "")]
    same, other, empty = measure.score(pairs)
    assert same == pytest.approx(1.0, abs=1e-6) and empty == 0
    # Float32 vectors, multiplied in another order.
    assert other == pytest.approx(float(found[0] @ found[2]), abs=1e-6)
    assert measure.score([]).shape == (0,)
    assert measure.note == "The embedding cosine is measured by tiny tiny"


@pytest.mark.parametrize("name", ["sup-simcse", "unsup-simcse"])
def test_an_encoder_of_sentences_gives_what_simcses_own_tool_gives(name, tmp_path):
    torch = pytest.importorskip("torch", reason="encoders of sentences run in torch")
    from transformers import BertConfig, BertModel

    folder, tokenizer = tmp_path / name, fast_tokenizer()
    tokenizer.pad_token = tokenizer.bos_token
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": len(tokenizer)}
    BertModel(BertConfig(**sizes)).save_pretrained(folder)
    texts = [*filter(None, TEXTS), "ka " * 400]
    embedder = open_embedder(str(folder))
    model = BertModel.from_pretrained(folder).eval()
    for text, vector in zip(texts, embedder.embed(texts), strict=True):
        cut = {"truncation": True, "max_length": 128, "return_tensors": "pt"}
        with torch.no_grad():
            read = model(**tokenizer(text, **cut))
        own = read.last_hidden_state[0, 0] if "unsup" in name else read.pooler_output[0]
        # Padded and alone, in float32.
        expected = (own / own.norm()).numpy()
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert embedding_measure(embedder).note.startswith(
        f"The embedding cosine is measured by {name} "
    )
