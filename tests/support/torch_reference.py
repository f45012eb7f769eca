"""What transformers' torch models give: the witness of the parity tests.

The reference log-probabilities are torch's log_softmax in float32; the reference
moments are direct sums over the vocabulary in float64.
"""

import numpy as np
import pytest

from jaxcontam.scoring.local import local_scorer

torch = pytest.importorskip("torch")

# The contract with users. Measured here: 1e-5 at most.
LOGPROBS = {"rtol": 0, "atol": 1e-4}
MOMENTS = {"rtol": 0, "atol": 1e-3}

# All rows of a context this short are padded to one length: one compilation a model.
CONTEXT = 16
LENGTHS = (2, 9, 13, CONTEXT)


def randomised(model, seed):
    """The model with every weight, biases and norms too, far from its start."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            spread = 0.3 if weight.ndim == 1 else 0.2
            weight += spread * torch.randn_like(weight)
        # Learned without a gradient, so that torch counts it as no parameter.
        for name, value in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "layer_scalar")):
                value += 0.3 * torch.randn_like(value)
    return model.eval()


def logits(model, ids):
    """(n_ids - 1, V): position t predicts id t + 1."""
    with torch.no_grad():
        return model(torch.tensor(ids[None, :-1].astype(np.int64))).logits[0]


def torch_logprobs(model, ids):
    """Log-probability of every id after the first, float32."""
    targets_S1 = torch.tensor(ids[1:, None].astype(np.int64))
    logprobs_SV = torch.log_softmax(logits(model, ids).float(), dim=-1)
    return logprobs_SV.gather(-1, targets_S1)[:, 0].numpy()


def torch_moments(model, ids):
    """(2, n_ids - 1): mean and variance of log p under the model, float64."""
    model.double()
    logprobs_SV = torch.log_softmax(logits(model, ids), dim=-1)
    model.float()
    probs_SV = logprobs_SV.exp()
    means_S1 = (probs_SV * logprobs_SV).sum(dim=-1, keepdim=True)
    variances_S = (probs_SV * (logprobs_SV - means_S1) ** 2).sum(dim=-1)
    return np.stack([means_S1[:, 0].numpy(), variances_S.numpy()])


def draw(vocab_size, seed=0):
    """One text of each length."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab_size, size=n, dtype=np.int32) for n in LENGTHS]


def assert_scores_agree(decoder, model):
    """All lengths in one call, so that all but one row are padded."""
    texts = draw(model.config.vocab_size)
    found = local_scorer(decoder, moments=True).tokens(texts)
    expected = [torch_logprobs(model, ids) for ids in texts]
    # Were all tokens alike, then misplaced scores would agree too.
    assert np.concatenate(expected).std() > 0.5
    for ids, scores, expected_S in zip(texts, found, expected, strict=True):
        np.testing.assert_allclose(scores[0], expected_S, **LOGPROBS)
        np.testing.assert_allclose(scores[1:3], torch_moments(model, ids), **MOMENTS)
