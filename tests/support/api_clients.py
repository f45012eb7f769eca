"""A client of a server in this process, and the simplest answers."""

from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.client import ApiClient

KEY = "sk-very-secret/with+signs"
PATH = "/completions"


def opened(url, **settings):
    """A client that never waits."""
    settings = {"api_key": KEY, "sleep": lambda _: None} | settings
    return ApiClient(ApiModel(url, "m"), **settings)


def answer_to(body):
    """The prompt in capitals."""
    text = body["prompt"].upper()
    return {"choices": [{"index": 0, "text": text}], "model": "m"}


def text_of(answer):
    return answer["choices"][0]["text"]
