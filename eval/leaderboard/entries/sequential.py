"""`sequential` of `jaxcontam audit`, which scores in turns."""

from eval.leaderboard.order_tests import order_entry

ENTRY = order_entry("sequential", priced_as="stratified")
