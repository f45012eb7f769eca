"""Texts whose side is known: shots, what a shot leaves out, and what is too few."""

import dataclasses

import pytest

from jaxcontam.errors import InputError
from jaxcontam.members.known_texts import (
    FEWEST,
    MEMBER,
    NONMEMBER,
    RunTexts,
    check_sides,
    draw_shots,
    left_out,
)
from jaxcontam.members.passes import fitting_shots
from jaxcontam.reports.numbers import plain_p
from tests.support.membership_model import MEMBERS, drawn_texts, overfitted

pytestmark = pytest.mark.unoptimised


def run_of(texts, roles, clusters=None):
    return RunTexts(
        name="run",
        texts=tuple(texts),
        roles=tuple(roles),
        clusters=clusters,
        sources=("run",) * len(texts),
    )


def test_shots_do_not_depend_on_the_order_of_the_file():
    texts = drawn_texts(30, seed=6)
    forward = run_of(texts, [MEMBER] * 30)
    backward = run_of(texts[::-1], [MEMBER] * 30)
    drawn = [
        [run.texts[i] for i in draw_shots(run, MEMBER, 4, seed=1)]
        for run in (forward, backward)
    ]
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 4
    other = [forward.texts[i] for i in draw_shots(forward, MEMBER, 4, seed=2)]
    assert other != drawn[0]


def test_copies_and_documents_of_a_shot_are_left_out():
    run = run_of(["a", "b", "a", "c"], [MEMBER, MEMBER, NONMEMBER, MEMBER])
    assert left_out(run, [0]).tolist() == [True, False, True, False]
    documents = run_of(["a", "b", "c"], [MEMBER] * 3, clusters=("x", "x", "y"))
    assert left_out(documents, [0]).tolist() == [True, True, False]


def test_too_few_texts_for_a_prefix_are_refused():
    run = run_of(drawn_texts(FEWEST + 2, seed=7), [MEMBER] * (FEWEST + 2))
    with pytest.raises(InputError, match="too few to take 3"):
        draw_shots(run, MEMBER, 3, seed=0)
    assert len(draw_shots(run, MEMBER, 2, seed=0)) == 2


def test_a_side_whose_documents_all_stand_in_a_prefix_is_refused():
    texts = drawn_texts(30, seed=8)
    run = run_of(texts, [MEMBER, NONMEMBER] * 15, clusters=("d", "e") * 15)
    with pytest.raises(
        InputError, match="0 documents of members beside those of a pre"
    ):
        check_sides(run, left_out(run, [0]))


def test_a_shot_that_is_too_long_is_passed_over():
    model = overfitted()
    shots = ["ga " * 200, "ka la", "mor un"]
    assert fitting_shots(shots, MEMBERS, model) == [1, 2]
    assert fitting_shots(shots[:1], MEMBERS, model) == []


def test_a_shot_that_fills_the_room_is_kept():
    model = overfitted()
    longest = max(len(ids) for ids in model.sequences(MEMBERS))
    n_shot = len(model.sequences(["ka la"])[0]) - model.n_before + 1  # its newline
    for room, expected in ((n_shot, [0]), (n_shot - 1, [])):
        opened = dataclasses.replace(model.model, context=longest + room)
        tight = dataclasses.replace(model, model=opened)
        assert fitting_shots(["ka la"], MEMBERS, tight) == expected


@pytest.mark.parametrize("p", [0.0504, 0.00104, 0.0499999, 9.96e-4, 1.0, 1e-4])
def test_a_p_value_is_never_shown_below_what_it_is(p):
    assert p <= float(plain_p(p)) <= p * 1.11
