"""torch, which is not a dependency: encoders run in it, our decoders never do."""

from jaxcontam.errors import InputError


def need_torch(what: str) -> None:
    """Refuse in one line where torch, which `what` needs, is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError as e:
        raise InputError(
            f"{what} needs torch, which is not installed",
            hint="pip install 'jaxcontam[torch]'",
        ) from e
