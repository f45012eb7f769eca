"""What pages say of the model that was scored, and of where it ran."""

from collections.abc import Mapping
from typing import Any


def model_words(model: Mapping[str, Any]) -> str:
    """Its size, context and number format; what is unknown is left out."""
    parts = []
    if model["n_parameters"] is not None:
        parts.append(f"{model['n_parameters']:,} parameters")
    if model["context"] is not None:
        parts.append(f"context {model['context']}")
    if (served := model.get("served")) is None:
        parts.append(model["dtype"])
    else:
        parts.append(f"served ({served['way']})")
    return ", ".join(parts)


def device_words(document: Mapping[str, Any]) -> list[str]:
    """The device, where it is known: no words or one."""
    device = document["device"]
    if device is None:
        return []
    words = f"{device['n']} x {device['kind']} ({device['platform']})"
    # Older reports do not say it.
    if (n_model := device.get("n_model", 1)) > 1:
        words += f", weights divided among {n_model}"
    return [words]
