"""What pages say of methods: every number has a source."""

import pytest

from jaxcontam.analyses.method_notes import method_notes
from jaxcontam.methods import METHODS
from jaxcontam.methods.replication.catalogue import REPLICATION_METHODS

pytestmark = pytest.mark.unoptimised

NAMES = [
    *METHODS,
    *[row.name for row in REPLICATION_METHODS],
    "bleurt_sign_flip",
    "min_k_10",
    "matrix",
    "perplexity",
    "rouge_l_recall",
    "embedding_cosine",
    "judge",
]


@pytest.mark.parametrize("name", NAMES)
def test_every_method_that_a_report_can_name_has_a_source(name):
    (note,) = method_notes({"results": [{"method": name}]})
    assert note.name == name and note.finds and note.source


def test_scores_of_a_set_and_scores_without_labels_have_notes():
    row = {"method": "set_level", "features": ["min_k", "loss"]}
    document = {"results": [row, row], "study": {"primary": "min_k"}}
    assert [n.name for n in method_notes(document)] == ["set_level", "min_k", "loss"]
    assert [n.name for n in method_notes(document | {"results": []})] == ["min_k"]


def test_methods_that_a_study_made_for_itself_are_left_out():
    assert method_notes({"results": [{"method": "mine"}]}) == []
