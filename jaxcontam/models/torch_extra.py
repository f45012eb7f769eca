"""torch, which is not a dependency: encoders run in it, our decoders never do."""

from jaxcontam.errors import InputError


def need_torch(what: str) -> None:
    """Refuse in one line where torch is not installed.

    Args:
        what: What runs in torch, such as `a masked model`.

    Raises:
        InputError: Names the extra that installs it.
    """
    try:
        import torch  # noqa: F401
    except ImportError as e:
        raise InputError(
            f"{what} needs torch, which is not installed",
            hint="pip install 'jaxcontam[torch]'",
        ) from e
