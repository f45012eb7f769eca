"""Paraphrases of texts by a model behind an API, each asked for once."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from jaxcontam.data.journal import Journal, journal_key
from jaxcontam.errors import InputError
from jaxcontam.scoring.chat_api import ApiModel, complete

PROMPT = (
    "Rewrite the text below in other words. Keep its meaning, every fact in it and "
    "about its length. Answer with the rewritten text alone.\n\n{text}"
)
"""What the model is asked; a part of the journal's key, with model and temperature."""

TEMPERATURE = 0.0
_N_PARALLEL = 4


def paraphrase(
    texts: Sequence[str],
    model: ApiModel,
    journal: Journal,
    *,
    api_key: str | None,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """One paraphrase a text, in the order of the texts.

    What the journal holds is not asked for again; what comes in is kept at once. A
    paraphrase may be longer or shorter than its text, and is not cut.

    Args:
        texts: Texts; equal ones are asked for once.
        model: The server and the model's name.
        journal: Finished requests.
        api_key: Sent to the server; in no file.
        progress: Called with requests done and in all.

    Raises:
        InputError: If the server fails for good, or an answer is empty. What came in
            before is kept.
    """
    keys = [_key(text, model) for text in texts]
    open_texts = {
        key: text for key, text in zip(keys, texts, strict=True) if key not in journal
    }
    n_before = len(set(keys)) - len(open_texts)
    n_empty = 0
    with ThreadPoolExecutor(_N_PARALLEL) as pool:
        asked: dict[Future[str], str] = {
            pool.submit(_ask, text, model, api_key): key
            for key, text in open_texts.items()
        }
        try:
            for number, future in enumerate(as_completed(asked), 1):
                answer = future.result().strip()
                if answer:
                    journal.add(asked[future], answer)
                n_empty += not answer
                if progress is not None:
                    progress(n_before + number, n_before + len(asked))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            # What was on its way is paid for.
            _keep_finished(asked, journal)
            raise
    if n_empty:
        raise InputError(
            f"{model.name}: {n_empty} of {len(asked)} paraphrases came back empty",
            hint="run the same command again: only these are asked for",
        )
    return [journal[key] for key in keys]


def _ask(text: str, model: ApiModel, api_key: str | None) -> str:
    message = {"role": "user", "content": PROMPT.replace("{text}", text)}
    return complete(
        model.url, model.name, [message], api_key=api_key, temperature=TEMPERATURE
    )


def _key(text: str, model: ApiModel) -> str:
    return journal_key(PROMPT, model.url, model.name, TEMPERATURE, text)


def _keep_finished(asked: dict[Future[str], str], journal: Journal) -> None:
    for future, key in asked.items():
        if future.cancelled() or future.exception() is not None or key in journal:
            continue
        if answer := future.result().strip():
            journal.add(key, answer)
