"""`permutation_besag_clifford` of `jaxcontam audit`, which scores in turns."""

from eval.leaderboard.order_tests import order_entry

ENTRY = order_entry("permutation_besag_clifford", priced_as="permutation")
