"""Order of the answer options: does the model prefer the published one?

Dimension key
    K  items
    M  orders of the item with the most, M = m + 1
    S  options of the largest item
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from jaxcontam.data.answer_options import Item
from jaxcontam.data.benchmark import Benchmark, content_digest, fingerprint
from jaxcontam.data.encoding import Encoder, encode_examples
from jaxcontam.data.files import Provenance
from jaxcontam.errors import InputError
from jaxcontam.orders.design import OPTIONS
from jaxcontam.orders.order_test import Layout, PlannedTest
from jaxcontam.proof.versions import VersionMethod
from jaxcontam.reports.terms import Null, ProofWords
from jaxcontam.scoring.plan import plan_versions
from jaxcontam.stats.option_orders import (
    NUMERIC,
    ONE_ORDER,
    PLACED,
    REPEATED,
    SHARED,
    SORTED,
    OptionDesign,
    draw_option_orders,
    option_pretests,
)
from jaxcontam.stats.orders import OrderDesign
from jaxcontam.stats.result import Pretest

EFFECT_UNIT = "nats per item"
NULL: Null = "exchangeability of options"
FIXED_NULL: Null = "exchangeability of wrong options"
_DEFAULT_ORDERS = 3
_RANDOM_PLACES = (
    "that, before any model was trained, the author put the {which} of each item in no "
    "particular order; items with sorted options, numbers, or options that name places "
    "were left out"
)

# The reasons why items are left out, as one item has them.
_OF_ONE = {
    REPEATED: "repeats an option",
    PLACED: "refers to places",
    NUMERIC: "has numbers as options",
    SHARED: "shares its options with another item",
    SORTED: "is sorted",
    ONE_ORDER: "has one order only",
}


def plan_options(
    benchmark: Benchmark,
    items: Sequence[Item],
    tokenizer: Encoder,
    *,
    prefix_id: int | None,
    seed: int,
    n_orders: int | None = None,
    fixed: bool = False,
    order_provenance: Provenance = "published",
) -> PlannedTest:
    """Draw option orders and lay out the items in each of them; asks no model.

    Null hypothesis: within each item that takes part, the published order of the
    options was as likely as any other order that may stand (none sorted; with `fixed`,
    none that moves the right option), independently over items: so of items with the
    same set of options one takes part. The test sees each item alone, so it needs
    nothing of the order of the file.

    Items with fewer than `n_orders` take all they have; `fixed` keeps each right option
    where it is. `order_provenance` speaks of options, not of items. The benchmark has
    no template.

    Raises:
        InputError: If no item can take part, or the right option is not known.
    """
    if fixed and (lacking := next((i for i in items if i.answer is None), None)):
        raise InputError(
            f"{benchmark.name}: example {lacking.number}: no field names the right "
            "option",
            hint="name it with --fields answer=NAME; options:fixed needs it",
        )
    digest = options_digest(items)
    design = option_orders(items, seed, n_orders, fixed=fixed)
    if not design.orders:
        raise InputError(
            f"{benchmark.name}: no item can take part: {_reasons(design)}",
            hint="give items whose options could be in any order",
        )
    texts = [
        items[i].text(order.tolist())
        for i, orders in zip(design.items.tolist(), design.orders, strict=True)
        for order in orders
    ]
    encoded = iter(encode_examples(tokenizer, texts, separator="").ids)
    rows = [[next(encoded) for _ in orders] for orders in design.orders]
    plan = plan_versions(rows, prefix_id=prefix_id, seed=seed, content_digest=digest)
    # -1 where an item has fewer orders or options.
    shape = np.array([found.shape for found in design.orders]).max(axis=0)
    orders_KMS = np.full((len(design.orders), *shape), -1, np.int32)
    for k, found in enumerate(design.orders):
        orders_KMS[k, : found.shape[0], : found.shape[1]] = found
    n_dropped = len(benchmark) - len(orders_KMS)
    return PlannedTest(
        benchmark=benchmark,
        method=dataclasses.replace(METHOD, null=FIXED_NULL) if fixed else METHOD,
        layout=Layout(
            design=OrderDesign(orders_KMS, plan.place, n_dropped),
            plan=plan,
            cut=None,
            items=tuple(items[i].number - 1 for i in design.items.tolist()),
        ),
        seed=seed,
        fingerprint=options_fingerprint(items),
        content_digest=digest,
        order_provenance=order_provenance,
        effect_unit=EFFECT_UNIT,
        checks=functools.partial(options_pretests, items, design, seed, fixed=fixed),
        warnings=_warnings(benchmark, items, design, fixed=fixed),
    )


def option_orders(
    items: Sequence[Item], seed: int, n_orders: int | None, *, fixed: bool
) -> OptionDesign:
    """Draw the orders of the items that take part; see `plan_options`."""
    return draw_option_orders(
        [item.options for item in items],
        _DEFAULT_ORDERS if n_orders is None else n_orders,
        seed=seed,
        content_digest=options_digest(items),
        fixed=[item.answer for item in items] if fixed else None,
        digests=_item_digests(items),
    )


def options_pretests(
    items: Sequence[Item], drawn: OptionDesign, seed: int, *, fixed: bool
) -> tuple[Pretest, ...]:
    """Pre-tests of the items that take part."""
    used = [items[i] for i in drawn.items.tolist()]
    options, answers = [one.options for one in used], [one.answer for one in used]
    return option_pretests(options, answers, seed=seed, fixed=fixed)


def options_fingerprint(items: Sequence[Item]) -> str:
    """Digest of items as published."""
    return fingerprint([item.text(range(len(item.options))) for item in items])


def options_digest(items: Sequence[Item]) -> str:
    """Digest of items, blind to the order of options and of items."""
    return content_digest(_item_digests(items))


def _item_digests(items: Sequence[Item]) -> list[str]:
    literals = ([p for p in item.parts if isinstance(p, str)] for item in items)
    return [
        content_digest([fingerprint(own), *item.sources])
        for own, item in zip(literals, items, strict=True)
    ]


def _warnings(
    benchmark: Benchmark, items: Sequence[Item], drawn: OptionDesign, *, fixed: bool
) -> tuple[str, ...]:
    n_items, warnings = len(items), []
    if n_out := n_items - len(drawn.orders):
        were = "was" if n_out == 1 else "were"
        said = f"{n_out} of {n_items} items {were} left out: {_reasons(drawn)}"
        warnings.append(said)
    if n_without := len(benchmark) - n_items:
        has = "record has" if n_without == 1 else "records have"
        warnings.append(f"{n_without} {has} no options")
    if not fixed and any(item.answer is None for item in items):
        warnings.append(
            "no field names the right option, so its place could not be checked "
            "(--fields answer=NAME)"
        )
    return tuple(warnings)


def _reasons(design: OptionDesign) -> str:
    return ", ".join(
        f"{count} {_OF_ONE[reason] if count == 1 else reason}"
        for reason, count in sorted(design.left_out.items())
    )


METHOD = VersionMethod(
    name=OPTIONS,
    command="audit",
    default_orders=_DEFAULT_ORDERS,
    null=NULL,
    validity="exact",
    cost="m + 1 passes (4; at most n! for n options)",
    finds="multiple-choice items whose options were seen in the published order",
    source="the test of stratified, with each item as a stratum",
    words=ProofWords(
        row="item",
        version="order of options",
        versions="orders of options",
        seen="options seen in their published order, other forms not tested",
        unseen="that its options were seen in their published order",
        more="more items are needed",
        found="its options are not in random order",
        meaning="A small p-value says that the model prefers the published order of "
        "the answer options, item by item: through memory, or because it shares its "
        "author's preference for an order. The order of the file does not matter. ",
        silence="A large p-value does not say that the items were never seen: copies "
        "with shuffled options leave no trace in this test. A reference model shows "
        "what preference alone gives, provided that it reads as well as the model.",
        assumed={
            NULL: _RANDOM_PLACES.format(which="options"),
            FIXED_NULL: _RANDOM_PLACES.format(which="wrong options")
            + "; right options kept their places",
        },
        chance="in each of {n_strata} items the published order of the options would "
        "be as likely as any other that was scored (up to {n_orders}) to score best; "
        "the summed score would reach the observed one with probability {p}",
        null_caption="Sum of the published scores over items, and the same sum with a "
        "random order of options in place of the published one.",
        evidence_caption="Where the evidence is: the score of each item, in the order "
        "of the file.",
        limits="versions",
        takes_reference=True,
        cures={
            "answer_place": (
                "move only wrong options, so that each right one keeps its place",
                "fixed",
            )
        },
        otherwise="test the order of the file instead: its options are not in random "
        "order",
    ),
)
