"""``Trainer``: the name exists so that scripts import; requant does not train."""

from __future__ import annotations

from requant.errors import UnsupportedError


class Trainer:
    """Raises UnsupportedError when it is made."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise UnsupportedError("requant runs and quantizes trained models; it does not train")
