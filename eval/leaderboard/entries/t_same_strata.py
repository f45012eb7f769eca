"""The paper's t-test on the strata of `stratified` instead of fifty shards.

Fifty shards of a small file hold two examples each; these hold as many as the context.
"""

from eval.leaderboard.detector import Entry, Finding, Subject, finding_of_p
from eval.leaderboard.order_tests import affordable_orders, order_numbers
from jaxcontam.methods import sharded_t, stratified


def detect(subject: Subject) -> Finding:
    """One-sided t-test that strata score higher in the published order."""
    n_orders = affordable_orders(subject, stratified.METHOD)
    numbers = order_numbers(
        subject, stratified.METHOD, n_orders=n_orders, read_by=sharded_t.METHOD
    )
    return finding_of_p(numbers.log10_p)


ENTRY = Entry(
    name="t_same_strata",
    detect=detect,
    gives="p-value",
    family="order",
    about="as sharded_t, on the strata and the scores of stratified; approximate",
    source=sharded_t.METHOD.source,
)
