"""What several files of tests of training read: a plan of audits, a finished run."""

import types

import numpy as np
import pytest

from jaxcontam.data.benchmark import Benchmark
from jaxcontam.models.config import llama_shape
from tests.support.train_corpus import manifest_of, planted_set, write_corpus
from train.audits import plan_audit
from train.config import Config, Optimizer
from train.pretrain import Pretrain
from train.tokens import train_tokenizer

_CONFIG = Config(
    name="smallest",
    decoder=llama_shape(
        vocab_size=300, d_model=16, n_layers=1, n_heads=2, d_ff=32, context=48
    ),
    batch_rows=4,
    optimizer=Optimizer(peak_rate=5e-3),
)


@pytest.fixture(scope="session")
def audited():
    """A configuration, a manifest of a set and a control, the plan of their audits."""
    rng = np.random.default_rng(0)
    sets = []
    for name in ("planted", "control"):
        numbers = rng.integers(0, 99, size=(12, 2))
        texts = tuple(f"{a} plus {b}" for a, b in numbers)
        sets.append(Benchmark(name, texts, (None,) * 12))
    tokenizer = train_tokenizer([" ".join(one.texts) for one in sets], 300)
    manifest = manifest_of(
        planted_set("planted", 3, ((2,), (5,), (7, 8))), planted_set("control", 0)
    )
    plan = plan_audit(
        sets,
        manifest,
        tokenizer.backend_tokenizer,
        prefix_id=0,
        context=_CONFIG.context,
        seed=0,
    )
    return types.SimpleNamespace(config=_CONFIG, manifest=manifest, plan=plan)


@pytest.fixture
def corpus(tmp_path):
    """Files of 60 short documents and of a set of 12 lines."""
    return write_corpus(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run of such a corpus that kept its checkpoints; read only."""
    folder = tmp_path_factory.mktemp("finished")
    docs, quiz = write_corpus(folder)
    Pretrain(
        corpus=(str(docs),),
        canaries=(f"{quiz}=3",),
        preset="pulse",
        keep_every=10,
        out=folder / "run",
    ).run()
    return folder / "run"
