"""Which shots stand before the texts of a pass."""

import types

from jaxcontam.data.encoding import plain_tokenizer
from jaxcontam.members.passes import TextModel, fitting_shots
from tests.support.membership_model import tokenizer


def test_a_shot_that_fills_the_room_exactly_is_kept():
    tokens = plain_tokenizer(tokenizer())
    n_shot, n_text = (len(tokens.encode(t).ids) for t in ("ka la\n", "mor un bist"))
    for room, expected in ((n_shot, [0]), (n_shot - 1, [])):
        opened = types.SimpleNamespace(
            tokenizer=tokens, prefix_id=0, context=1 + n_text + room
        )
        model = TextModel(model=opened, plain=None)
        assert fitting_shots(["ka la"], ["mor un bist", "ka"], model) == expected
        # One that is too long is passed over, and the rest is full.
        shots = ["ga " * 99, *["ka la"] * 3]
        assert fitting_shots(shots, ["mor un bist"], model) == [1][: len(expected)]
