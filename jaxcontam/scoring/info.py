"""What a report says of the model that was scored, and of the device."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServedInfo:
    """What a few requests showed of a server, before anything was scored.

    Attributes:
        way: How it gives log-probabilities, and what is sent.
        has_bos: Whether it puts a token before texts; None where ids are sent.
        read_write_difference: Nats by which a token's log-probability when it is read
            differs from that when the model wrote it, on average.
        repeat_difference: Largest difference between two answers to one request.
        n_probe_requests: Requests that it took.
    """

    way: str
    has_bos: bool | None
    read_write_difference: float
    repeat_difference: float
    n_probe_requests: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The model that was scored.

    Attributes:
        name: A directory's name, or the word that names a served model.
        fingerprint: Digest of what decides the scores, as far as it is known.
        n_parameters: None where the weights are not here.
        dtype: `unknown` where others run the model, like `precision`.
        precision: Precision of matrix products.
        context: Ids that are read at once.
        attention: Kernel of a library that computed attention, if one did.
        served: What a server was found to do; None where the model runs here.
    """

    name: str
    fingerprint: str
    n_parameters: int | None
    dtype: str
    precision: str
    context: int | None
    attention: str | None = None
    served: ServedInfo | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """The device that scored; results are to the bit on the same one only.

    Attributes:
        platform: Such as cpu or gpu.
        kind: As its maker calls it.
        n: Devices.
        cpu_cores: CPU cores of the host that this process may use.
        n_model: Devices that one copy of the weights is divided among.
    """

    platform: str
    kind: str
    n: int
    cpu_cores: int
    n_model: int = 1
