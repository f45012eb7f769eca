"""What pages say of methods: every number has a source."""

import dataclasses
import types
from string import Formatter

import pytest

from jaxcontam.members.result import SetResult
from jaxcontam.methods import METHODS, method_words, named_rows
from jaxcontam.replication.page import REPLICATION_METHODS, replication_words
from jaxcontam.reports.page import named_methods
from tests.support.report_documents import audit_report

pytestmark = pytest.mark.unoptimised

# Values that `chance_sentence` hands to the words of a method.
CHANCE = "{p}{n_strata}{n_orders}{s}{n_versions}{counted}{orders}{within}"
COMPLETIONS = [*REPLICATION_METHODS, "bleurt_sign_flip"]


@pytest.mark.parametrize("name", COMPLETIONS)
def test_every_method_that_asks_for_completions_has_words(name):
    row = types.SimpleNamespace(method=name)
    report = dataclasses.replace(audit_report(), results=(row,))
    words = replication_words(report)[name]
    assert words.name == name and words.finds and words.source and words.label


@pytest.mark.parametrize("name", [*METHODS, "matrix"])
def test_every_method_that_a_report_can_name_has_words(name):
    words = method_words([name])[name]
    assert words.name == name and words.finds and words.source and words.label
    assert named_rows([name]) == [(name, words.finds, words.source)]


def test_every_test_says_what_chance_would_give():
    names = {field for _, field, *_ in Formatter().parse(CHANCE) if field}
    for name, words in method_words().items():
        assert words.proof is not None
        chance = words.proof.chance
        used = {field for _, field, *_ in Formatter().parse(chance) if field}
        assert "p" in used and used <= names, name


def test_scores_of_a_set_and_scores_without_labels_are_named():
    row = SetResult(
        benchmark="x",
        fingerprint="sha256:x",
        n_members=1,
        n_nonmembers=1,
        features=("min_k", "loss"),
        auc=0.5,
        p_value=1.0,
        n_permutations=9,
    )
    report = audit_report(study={"primary": "min_k"})
    assert named_methods(report) == ["min_k"]
    report = dataclasses.replace(report, results=(row, row))
    assert named_methods(report) == ["set_level", "min_k", "loss"]
