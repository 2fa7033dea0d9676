"""``mx.contrib.amp``: names of mixed-precision training, which there is none of here."""

from __future__ import annotations

from typing import Any

from requant.errors import UnsupportedError

_NEXT = "for inference in half precision, cast the block: net.cast('float16'), or compile(precision='f16')"


def _refuse(*args: Any, **kwargs: Any) -> Any:
    """Raises UnsupportedError: requant does not train."""
    raise UnsupportedError(
        "requant runs and quantizes trained models; it does not train in mixed precision", next=_NEXT
    )


init = init_trainer = scale_loss = unscale = convert_model = convert_symbol = convert_hybrid_block = _refuse
