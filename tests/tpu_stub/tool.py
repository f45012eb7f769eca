"""Stands in for gcloud, kubectl, uv and gcsfuse: `tool.py NAME WORDS...`.

It refuses a command, a flag or a number of positional words that flags.json has not,
writes each call to $STUB/calls.jsonl, and plays a TPU: `request.json` is the queued
resource, a folder the home of each worker, where commands of ssh really run. Imports
stand in functions, since a test calls it dozens of times.
"""

import json
import os
import sys
from pathlib import Path

_TABLE = json.loads(Path(__file__).with_name("flags.json").read_text("utf-8"))
_STUB = Path(os.environ["STUB"])
_N_WORKERS = 2


class WrongCall(Exception):
    """A call that the real tool would refuse."""


def parsed(tool, words):
    """Command, positional words and flags of a call, checked against the table."""
    command = max(
        (
            name
            for name in _TABLE[tool]["commands"]
            if words[: len(name.split())] == name.split()
        ),
        key=len,
        default=None,
    )
    if command is None:
        raise WrongCall(f"unknown command: {' '.join(words)}")
    known, wide = _TABLE[tool]["commands"][command], _TABLE[tool]["everywhere"]
    values = {*known["values"], *wide["values"]}
    switches = {*known["switches"], *wide["switches"]}
    positional, flags = [], {}
    rest = iter(words[len(command.split()) :])
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            positional.append(word)
        elif name in switches and not equals:
            flags[name] = True
        elif name in values:
            flags[name] = value if equals else next(rest)
        else:
            raise WrongCall(f"unrecognized argument: {word}")
    least, most = known["positional"]
    if len(positional) < least or (most is not None and len(positional) > most):
        raise WrongCall(f"{command}: {len(positional)} positional words")
    missing = set(known["required"]) - set(flags)
    if missing:
        raise WrongCall(f"{command}: needs {sorted(missing)}")
    for group in known.get("exclusive", []):
        if len(flags.keys() & set(group)) > 1:
            raise WrongCall(f"{command}: one of {group}")
    return command, positional, flags


def _request():
    path = _STUB / "request.json"
    return json.loads(path.read_text()) if path.exists() else None


def _home(worker):
    # Another folder after each deletion: processes of the old TPU write to the old one.
    tpu = _STUB / "tpu"
    return _STUB / "workers" / (tpu.read_text() if tpu.exists() else "0") / str(worker)


def _not_found(name):
    print(
        f"ERROR: (gcloud) NOT_FOUND: Resource {name!r} was not found", file=sys.stderr
    )
    return 1


def _create(positional, flags):
    if _request() is not None:
        print("ERROR: (gcloud) ALREADY_EXISTS", file=sys.stderr)
        return 1
    future = _STUB / "future.json"
    states = json.loads(future.read_text()) if future.exists() else ["ACTIVE"]
    (_STUB / "request.json").write_text(json.dumps(states))
    # Disks of a new TPU are empty.
    for worker in range(_N_WORKERS):
        _home(worker).mkdir(parents=True)
    return 0


def _describe(positional, flags):
    states = _request()
    if states is None:
        return _not_found(positional[0])
    print(states[0])
    if len(states) > 1:  # the last one stays
        (_STUB / "request.json").write_text(json.dumps(states[1:]))
    return 0


def _delete(positional, flags):
    if _request() is None:
        return _not_found(positional[0])
    (_STUB / "request.json").unlink()
    (_STUB / "tpu").write_text(str(int(_home(0).parent.name) + 1))
    return 0


def _workers(flags):
    word = flags["--worker"]
    return range(_N_WORKERS) if word == "all" else [int(word)]


def _ssh(positional, flags):
    import subprocess

    if (_request() or [None])[0] != "ACTIVE":
        return _not_found(positional[0])
    codes = []
    for worker in _workers(flags):
        # As gcloud hands it on: cut at single spaces, and joined again by ssh.
        line = " ".join(flags["--command"].split(" "))
        done = subprocess.run(
            ["bash", "-c", line],
            env={**os.environ, "HOME": str(_home(worker)), "WORKER": str(worker)},
            cwd=_home(worker),
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        codes.append(done.returncode)
        sys.stdout.buffer.write(done.stdout)
    return next((code for code in codes if code), 0)


def _scp(positional, flags):
    import shutil

    *sources, target = positional
    if target.startswith("/"):
        (source,) = sources
        path = _home(flags["--worker"]) / source.partition(":")[2]
        if path.is_dir() and "--recurse" in flags:
            shutil.copytree(path, Path(target) / path.name, dirs_exist_ok=True)
        elif path.is_file():
            shutil.copy(path, target)
        else:
            return 1
    else:
        for worker in _workers(flags):
            for source in sources:
                shutil.copy(source, _home(worker) / target.partition(":")[2])
    return 0


def _in_bucket(url):
    return _STUB / "bucket" / url.removeprefix("gs://")


def _storage(verb, positional):
    import shutil

    if verb == "ls":
        folder = _in_bucket(positional[0])
        if not folder.is_dir():
            print("ERROR: matched no objects", file=sys.stderr)
            return 1
        print("\n".join(positional[0] + path.name for path in folder.iterdir()))
    elif verb == "cp":
        target = _in_bucket(positional[1])
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(positional[0], target)
    else:
        if not _in_bucket(positional[0]).is_dir():
            return 1
        shutil.copytree(_in_bucket(positional[0]), positional[1], dirs_exist_ok=True)
    return 0


def _uv(command, positional):
    if command == "venv":
        python = Path(positional[0]) / "bin/python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\necho process 0 of 1\n")
        python.chmod(0o755)
    return 0


def _kubectl(flags):
    import shutil

    shutil.copy(flags["--filename"], _STUB / "applied.yaml")
    return 0


def main():
    tool, *words = sys.argv[1:]
    with (_STUB / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps([tool, *words]) + "\n")
    try:
        command, positional, flags = parsed(tool, words)
    except WrongCall as e:
        (_STUB / "refused").write_text(f"{tool}: {e}")
        print(f"ERROR: ({tool}) {e}", file=sys.stderr)
        return 2
    verb = command.split(" ")[-1]
    if tool == "gcloud" and command.startswith("storage"):
        return _storage(verb, positional)
    if tool == "gcloud" and command.endswith("tpu-vm describe"):
        print(";".join(f"10.0.0.{worker}" for worker in range(_N_WORKERS)))
        return 0
    if tool == "gcloud":
        plays = {"create": _create, "describe": _describe, "delete": _delete}
        return {**plays, "ssh": _ssh, "scp": _scp}[verb](positional, flags)
    if tool == "uv":
        return _uv(command, positional)
    return _kubectl(flags) if tool == "kubectl" else 0


if __name__ == "__main__":
    sys.exit(main())
