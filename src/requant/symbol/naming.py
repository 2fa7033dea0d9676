"""Automatic names and scoped attributes, with MXNet's rules: ``convolution0``, ``convolution1``, ``_plus0``."""

from __future__ import annotations

import contextvars
from types import TracebackType


class NameManager:
    """Gives a name to every node that has none: the operator's name in lower case and a counter.

    Used as a context manager, it replaces the current one until the block ends.
    """

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}
        self._token: contextvars.Token[NameManager] | None = None

    def get(self, name: str | None, hint: str) -> str:
        """``name`` if it is given, else ``hint`` and the next free number."""
        if name:
            return name
        count = self._counter.get(hint, 0)
        self._counter[hint] = count + 1
        return f"{hint}{count}"

    def __enter__(self) -> NameManager:
        self._token = _name_manager.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _name_manager.reset(self._token)


class Prefix(NameManager):
    """A name manager that puts a prefix before every name, given or automatic."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        return self._prefix + super().get(name, hint)


class AttrScope:
    """Attributes given to every node made inside the block, as ``__key__`` strings."""

    def __init__(self, **attributes: str) -> None:
        for key, value in attributes.items():
            if not isinstance(value, str):
                raise ValueError(f"attributes must be strings: got {key}={value!r}, expected {key}={str(value)!r}")
        self._attributes = {f"__{key.strip('_')}__" if key else key: value for key, value in attributes.items()}
        self._token: contextvars.Token[AttrScope] | None = None

    def get(self, attributes: dict[str, str] | None) -> dict[str, str]:
        """The scope's attributes, overridden by the given ones."""
        return {**self._attributes, **(attributes or {})}

    def __enter__(self) -> AttrScope:
        outer = _attr_scope.get()
        self._attributes = {**outer._attributes, **self._attributes}
        self._token = _attr_scope.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _attr_scope.reset(self._token)


# One default per process, as in MXNet; blocks entered in a thread or task stay in it.
_name_manager: contextvars.ContextVar[NameManager] = contextvars.ContextVar("name_manager", default=NameManager())  # noqa: B039
_attr_scope: contextvars.ContextVar[AttrScope] = contextvars.ContextVar("attr_scope", default=AttrScope())  # noqa: B039


def current_names() -> NameManager:
    """The name manager in force."""
    return _name_manager.get()


def current_attributes() -> AttrScope:
    """The attribute scope in force."""
    return _attr_scope.get()
