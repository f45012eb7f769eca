"""`direction` of `jaxcontam audit`."""

from eval.leaderboard.order_tests import order_entry

ENTRY = order_entry("direction")
