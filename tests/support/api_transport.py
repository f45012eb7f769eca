"""A client of a server, which may be no more than a function, and simple answers."""

import json
import threading
import time

import httpx2

from jaxcontam.scoring.api.address import ApiModel
from jaxcontam.scoring.api.client import ApiClient

MODEL = ApiModel("http://host/v1", "m")
KEY = "sk-very-secret/with+signs"
PATH = "/completions"


class Server:
    """Answers each prompt in capitals, after what `plan` says of it."""

    def __init__(self, plan=lambda prompt, number: None):
        self.plan = plan
        self.prompts = []
        self.n_inside = self.most_inside = 0
        self._lock = threading.Lock()

    def __call__(self, request):
        body = json.loads(request.content)
        prompt = body["prompt"]
        with self._lock:
            self.prompts.append(prompt)
            number = len(self.prompts)
            self.n_inside += 1
            self.most_inside = max(self.most_inside, self.n_inside)
        try:
            # Others get a turn, as on a network.
            time.sleep(0.0005)
            found = self.plan(prompt, number)
        finally:
            with self._lock:
                self.n_inside -= 1
        if isinstance(found, httpx2.Response):
            return found
        return ok(str(prompt).upper() if found is None else found)


def ok(text, **fields):
    answer = {
        "choices": [{"index": 0, "text": text}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    return httpx2.Response(200, json=answer | fields)


def fault(status, words="busy", **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, json={"error": {"message": words}}, headers=headers)


def opened(server, journal=None, **settings):
    """A client that never waits, of a URL or of a function that answers."""
    settings = {"journal": journal, "sleep": lambda _: None} | settings
    if isinstance(server, str):
        return ApiClient(ApiModel(server, "m"), **{"api_key": KEY} | settings)
    transport = httpx2.MockTransport(server)
    return ApiClient(MODEL, transport=transport, **{"api_key": None} | settings)


def bodies(n, **fields):
    return [{"prompt": f"p{i}", "max_tokens": 2} | fields for i in range(n)]


def texts(answers):
    return [answer["choices"][0]["text"] for answer in answers]


def answer_to(body):
    """The prompt in capitals."""
    text = body["prompt"].upper()
    return {"choices": [{"index": 0, "text": text}], "model": "m"}
