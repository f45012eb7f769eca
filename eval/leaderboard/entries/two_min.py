"""`two_min` of `jaxcontam audit`, its two parts made smaller to share the budget."""

from eval.leaderboard.detector import Entry, Finding, Subject, finding_of_p
from eval.leaderboard.order_tests import (
    affordable_orders,
    affordable_strata,
    order_numbers,
)
from jaxcontam.methods import adjacency, stratified, two_min


def detect(subject: Subject) -> Finding:
    """Adjacency in strata of half the passes, then stratified with what is left."""
    passes = subject.budget.left // subject.budget.pass_tokens
    neighbours = affordable_strata(subject, adjacency.METHOD, most=passes // 2)
    parts = [order_numbers(subject, neighbours, n_orders=None)]
    n_orders = affordable_orders(subject, stratified.METHOD)
    parts.append(order_numbers(subject, stratified.METHOD, n_orders=n_orders))
    return finding_of_p(two_min.combined_numbers(parts).log10_p)


ENTRY = Entry(
    name="two_min",
    detect=detect,
    gives="p-value",
    family="order",
    about="the smaller p of adjacency and stratified, doubled; each at half the budget",
    source=two_min.METHOD.source,
)
