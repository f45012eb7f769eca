"""Fill in jobset.yaml from the settings in the environment, and print it.

Command: `python3 fill_jobset.py COMMAND...`, by jobset_run.sh. Every value is written
as JSON, which YAML reads as it is: no setting and no argument can break the file.
"""

import json
import os
import string
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_TEMPLATE = Path(__file__).with_name("jobset.yaml")


def filled(settings: Mapping[str, str], command: Sequence[str]) -> str:
    """The JobSet of a command, as YAML.

    Args:
        settings: As in env.example.
        command: Words of the command that each host runs.

    Raises:
        KeyError: If a setting is missing.
        ValueError: If a number is none.
    """
    nodes = {
        "cloud.google.com/gke-tpu-accelerator": settings["GKE_ACCELERATOR"],
        "cloud.google.com/gke-tpu-topology": settings["GKE_TOPOLOGY"],
    }
    if settings.get("SPOT") == "1":
        nodes["cloud.google.com/gke-spot"] = "true"
    queue = settings.get("GKE_QUEUE")
    chips = {"google.com/tpu": int(settings["GKE_CHIPS_PER_HOST"])}
    disk = settings.get("GKE_DISK")
    bucket = settings["BUCKET"].removeprefix("gs://")
    values = {
        "RUN_NAME": settings["RUN_NAME"],
        "LABELS": {"kueue.x-k8s.io/queue-name": queue} if queue else {},
        "MAX_RESTARTS": int(settings["MAX_RESTARTS"]),
        "HOSTS": int(settings["GKE_HOSTS"]),
        "REQUESTS": chips | ({"ephemeral-storage": disk} if disk else {}),
        "LIMITS": chips,
        "SERVICE_ACCOUNT": settings["GKE_SERVICE_ACCOUNT"],
        "NODE_SELECTOR": nodes,
        "IMAGE": settings["IMAGE"],
        # Kubernetes makes $ of $$, and of $(NAME) what the pod's environment has.
        "COMMAND": [word.replace("$", "$$") for word in command],
        "RUN_URL": f"gs://{bucket}/{settings['RUN_NAME']}",
        "BUCKET": bucket,
    }
    lines = _TEMPLATE.read_text(encoding="utf-8").splitlines(keepends=True)
    # The comments of the template say ${NAMES}, and nobody reads them afterwards.
    body = "".join(line for line in lines if not line.lstrip().startswith("#"))
    return string.Template(body).substitute(
        {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
    )


if __name__ == "__main__":
    sys.stdout.write(filled(os.environ, sys.argv[1:]))
