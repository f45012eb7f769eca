"""Words of earlier versions: flags and commands that left, and what to type now."""

from collections.abc import Sequence

_ROWS = "python examples/database_rows.py DIR"
GONE = {
    "--completion": "jaxcontam --tyro-print-completion bash (or zsh, fish)",
    "compare": "two reports side by side are ten lines of Python: "
    "docs/how_to/hand_on.md",
    "books": "jaxcontam membership MODEL books/ --members old/ --nonmembers new/",
    "unlearning": "python -m eval.unlearning",
    "membership --sweep-k": "sweep_k=True of jaxcontam.membership in Python",
    "membership --convention": "convention='lt' of jaxcontam.membership in Python",
    "membership --n-neighbours": "n_neighbours=N of jaxcontam.membership in Python",
    "membership --shots": "shots=N of jaxcontam.membership in Python",
    "membership --fprs": "--fpr RATE RATE",
    "membership --limit": "--sample N",
    "membership --label-field": "--fields member=FIELD",
    "membership --primary": "--scores NAME auto: the first that is named decides",
    "membership --corpus": "--scores auto dc_pdd:FILE",
    "membership --masked-lm": "--scores auto neighbourhood:FOLDER",
    "inflation --limit": "--sample N",
    "inflation --scores": "--scored",
    "inflation --reference": "--references A B",
    "inflation --paired": "--unpaired",
    "inflation --group-field": "--fields document=FIELD",
    "replicate --k": "--sample N",
    "replicate --group-field": "--fields document=FIELD",
    "replicate --label-field": "--fields label=FIELD",
    "replicate --annotated": "--judge FILE.csv",
    "overlap --text-field": "--corpus-field FIELD",
    "overlap --budget": "--max-queries N",
    "variants --text-field": "--fields text=FIELD",
    "audit --seed-file": "--order FILE",
    "plan --benchmark": "--pilot-benchmark NAME",
    "prove --scores": "--statistic NAME",
    "audit --effort": "nothing for quick; --tests direction,adjacency for standard",
    "audit --first-tokens": "--score-tokens N",
    **{
        f"report --{flag}": _ROWS
        for flag in ("database-row", "dataset", "source", "split-percent", "reference")
    },
    "--no-store": "--store none",
    "--batch-tokens": "a batch for which a device has no room is halved",
    "--distributed": "--shard pod",
    "--overwrite": "--out FOLDER, or remove the report that is there",
    "--price-in": "--price IN,OUT",
    "--price-out": "--price IN,OUT",
    "--price-per-hour": "--price HOUR with --dry-run",
    "--template": "--text TEMPLATE",
    "--text-field": "--text FIELD",
    "--benchmark-field": "--text FIELD",
    "--n-orders": "--tests NAME:N",
    "--shuffled": "--order random",
    "--score-anyway": "--order anyway",
    "--chat-template": "--separator chat:user, chat:assistant or chat:both",
    "--options-field": "--fields options=FIELD",
    "--answer-field": "--fields answer=FIELD",
    "--fix-answer": "--tests options:fixed",
    "--id-field": "--fields id=FIELD",
    "--document-field": "--fields document=FIELD",
    "--variants-field": "--fields variants=FIELD",
    "--first-field": "--fields first=FIELD second=FIELD",
    "--second-field": "--fields first=FIELD second=FIELD",
    "--label-names": "--fields labels=NAME,NAME",
    "--split-name": "--dataset-name NAME:SPLIT",
    "--cdd-samples": "--compare cdd:N",
    "--bleurt": "--compare bleurt:FOLDER",
    "--embedding-model": "--compare embedding:MODEL",
    "--stop": "stop = [TEXT, ...] in the file of --prompts",
}
"""A command, a flag of one, or a flag of several, that left -> what to use instead."""

_PERMUTED = ("stratified", "permutation", "sharded_t", "sharded_t_released", "options")


def new_flag(command: str, flag: str) -> str | None:
    """The flag of a command that replaces one; None if that never left."""
    return GONE.get(f"{command} {flag}") or GONE.get(flag)


def renewed_remedy(remedy: str) -> str:
    """The flags of a failed check, as this version types them."""
    for flag in ("--template", "--text-field"):
        remedy = remedy.replace(f"{flag} ", "--text ", 1)
    return remedy


def renewed(words: Sequence[str]) -> tuple[str, ...]:
    """The words of an audit by an earlier version, as this one types them."""
    told: dict[str, list[str]] = {"": []}
    for word in words:
        if word.startswith("--"):
            told[word] = []
        else:
            told[[*told][-1]].append(word)

    def taken(*flags: str) -> list[str]:
        return [value for flag in flags for value in told.pop(flag, ())]

    order = ["random"] if "--shuffled" in told else []
    order += ["anyway"] if "--score-anyway" in told else []
    order += told.get("--order", []) + taken("--shuffled", "--score-anyway")
    order += taken("--seed-file")
    counts, fixed = taken("--n-orders"), "--fix-answer" in told
    tests = [name.strip() for name in ",".join(told.get("--tests", ())).split(",")]
    for i, name in enumerate(tests):
        if name in _PERMUTED:
            tests[i] = ":".join([name, *counts])
        if fixed and name == "options":
            tests[i] += ":fixed"
    fields = told.get("--fields", [])
    fields += [f"options={name}" for name in taken("--options-field")]
    fields += [f"answer={name}" for name in taken("--answer-field")]
    new = {
        "--tests": [",".join(tests)] if tests != [""] else [],
        "--order": order,
        "--fields": fields,
        "--text": told.get("--text", []) + taken("--template", "--text-field"),
        "--separator": told.get("--separator", [])
        + [f"chat:{turn}" for turn in taken("--chat-template")],
    }
    gone = ("--fix-answer", "--batch-tokens", "--no-store", "--distributed")
    taken(*gone, "--price-in", "--price-out", "--price-per-hour")
    told |= {flag: values for flag, values in new.items() if values}
    first = told.pop("")
    return (*first, *(w for flag, values in told.items() for w in (flag, *values)))
