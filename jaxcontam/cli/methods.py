"""`jaxcontam methods`: needs, cost, formula and source of each method.

`l[k, j]` is the log-likelihood of stratum k in order j, the published one at j = 0;
`L[i, j]` is log p(example j | example i); `d` are differences of pairs; `m` counts
random orders.
"""

from collections.abc import Mapping
from typing import Any

from rich.padding import Padding
from rich.table import Table

from jaxcontam.cli.flags import Methods
from jaxcontam.errors import unknown_name
from jaxcontam.methods import GIVES, METHODS
from jaxcontam.terminal import Terminal

FORMULAS: Mapping[str, str] = {
    "direction": "p = P(T(runs turned at random) >= T(published)), T(order) = sum over "
    "i before j of (R[i, j] - R[j, i]) / (places between), R = L minus effects of i, j",
    "adjacency": "p = P(sum of T(random order) >= sum of T(published)), T(order) = "
    "sum over neighbours of L[i, j], centred by rows and columns",
    "stratified": "p = P(sum over k of l[k, J_k] >= sum over k of l[k, 0]), J_k "
    "uniform on 0 .. m",
    "reversal": "p = P(sum of +-d[k] >= sum of d[k]), d[k] = l[k, published] - l[k, "
    "reversed], signs at random",
    "permutation": "p = (1 + #{j: l[j] >= l[published]}) / (m + 1)",
    "sharded_t": "p = P(t with K - 1 degrees >= mean(d) / sd(d) * sqrt(K)), d[k] = "
    "l[k, published] - mean over j of l[k, j]",
    "sharded_t_released": "as sharded_t, with sd(d) divided by K instead of K - 1",
    "options": "p as in stratified, l[k, j] = log-likelihood of item k with its "
    "options in order j",
    "variants": "p as in stratified, l[k, j] = log-likelihood of version j of text k",
    "canary": "p as in stratified, l[k, 0] = log p(secret k), l[k, j] = log p of its "
    "j-th held-out sequence",
    "canary_alone": "p = (1 + #{held-out sequences at least as likely}) / (N + 1)",
    "canary_chat": "p as in stratified, l[k, j] = share of answers to questions of "
    "group k that name value j, the drawn one at j = 0",
    "min_k": "mean of the lowest 20% of log p(x_t | x_<t)",
    "min_k_pp": "mean of the lowest 20% of (log p(x_t) - mu_t) / sigma_t, moments of "
    "log p under the model's own distribution",
    "loss": "mean over t of log p(x_t | x_<t)",
    "zlib": "(mean log p per token) / (bytes of the text under zlib)",
    "surp": "mean of log p(x_t) over its lowest 20% where the entropy is below 2 nats",
    "gap_k": "mean of the lowest 20% of (log p(x_t) - max_v log p(v)) / sigma_t, "
    "averaged over 3 tokens",
    "dc_pdd": "mean over distinct tokens of min(p(x_t) * -log f(x_t), 0.01), f from "
    "the corpus",
    "lowercase": "(mean log p of the text in small letters) / (mean log p of the text)",
    "neighbourhood": "log p(x) - mean over neighbours x' of log p(x'), per token; over "
    "their standard deviation where they are filled spans",
    "reference": "log p(x) - log p(x) under the reference model, per token",
    "recall": "(mean log p of x after unseen texts) / (mean log p of x)",
    "con_recall": "(LL(x | non-members) - 0.5 LL(x | members)) / LL(x)",
    "codec": "mean log p of x - mean log p of x after another text of its file",
    "gradient_norm": "-||gradient of the mean loss of x by all weights||",
    "judge_local": "1 exact or 2 near-exact copies of 10 (8 of 50); near-exact: "
    "(ROUGE-L precision + content-word precision) / 2 >= 0.68",
    "judge_llm": "1 exact or 2 near-exact copies of 10 (8 of 50), as the model labels",
    "judge_human": "1 exact or 2 near-exact copies of 10 (8 of 50), as people label",
    "rouge_l_sign_flip": "p = P(sum of +-d[i] >= sum of d[i]), d[i] = ROUGE-L(guided) "
    "- ROUGE-L(general)",
    "rouge_l_paired_bootstrap": "p = (1 + #{mean(d*) <= 0}) / 10,001, d* drawn from d",
    "rouge_l_unpaired_bootstrap": "p = (1 + #{mean(guided*) <= mean(general*)}) / "
    "10,001, each drawn by itself",
    "bleurt": "as rouge_l, on BLEURT",
    "embedding": "as rouge_l, on the cosine of sentence embeddings",
    "first_instances": "a first row copied, or two with F1 of common words >= 0.75",
    "cdd": "share of 20 samples within 5% edit distance of the greedy answer > 0.01",
    "ts_guessing_word": "share of masked words that the model names",
    "ts_guessing_option": "share of masked wrong options that the model writes",
    "file_path": "share of issues whose file the model names, minus that of a control",
}
"""The formula of each method in a line; docs/methods has the rest of each."""


def show(command: Methods) -> None:
    """Print the tests, then the membership scores, then what `replicate` does."""
    console = Terminal()
    for name in command.name:
        if name not in METHODS:
            raise unknown_name("method", name, METHODS)
        console.print(name, style="bold")
        for line in _lines(name):
            console.print(Padding(line, (0, 0, 0, 2)))
    if command.name:
        return
    for title in dict.fromkeys(GIVES.values()):
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column(title, no_wrap=True)
        table.add_column("gives; costs")
        table.add_column("finds")
        for name in (one for one in METHODS if GIVES[one] == title):
            given, finds = _lines(name)[:2]
            table.add_row(name, given, finds.removeprefix("finds: "))
        console.print(table, "")
    console.print("jaxcontam methods NAME shows the rest: formula, null, source.")


def _lines(name: str) -> list[str]:
    row: Any = METHODS[name]
    lines = [f"{row.gives}; {row.cost}", f"finds: {row.finds}", f"needs: {row.needs}"]
    # A method of another package has none.
    if formula := FORMULAS.get(name):
        lines.insert(2, f"formula: {formula}")
    if null := getattr(row, "null", ""):
        lines.append(f"null hypothesis: {null}")
    lines.append(f"source: {row.source}")
    if departure := getattr(row, "departure", ""):
        lines.append(f"not as in the authors' code: {departure}")
    if row.example:
        lines.append(f"example: {row.example}")
    return lines
