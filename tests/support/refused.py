"""What a refused call says."""

import pytest

from jaxcontam.errors import InputError


def refusal(function, *args, **flags):
    """Message, of one line, and hint of the InputError that a call raises."""
    with pytest.raises(InputError) as caught:
        function(*args, **flags)
    message = str(caught.value)
    assert "\n" not in message
    return message, caught.value.hint
