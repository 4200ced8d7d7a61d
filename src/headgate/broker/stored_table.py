"""Small values under names, kept in the store: users, permissions, policies, parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from headgate.broker.refusals import PreconditionFailed
from headgate.store import Store

Key = TypeVar("Key", bound="str | tuple[str, ...]")
Value = TypeVar("Value")
StoredDefinitions: TypeAlias = Mapping[tuple[str, str], bytes]  # of a store, by kind and name


class StoredTable(Mapping[Key, Value], Generic[Key, Value]):
    """Values by name, or by several names together; each is written as JSON when it is put."""

    def __init__(
        self,
        store: Store,
        kind: str,
        encode: Callable[[Value], Any],
        decode: Callable[[Any], Value],
    ) -> None:
        self._store, self._kind, self._encode, self._decode = store, kind, encode, decode
        self._values: dict[Key, Value] = {}

    def __getitem__(self, key: Key) -> Value:
        return self._values[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: Key, value: Value) -> None:
        text = _join(key)
        self._store.define(self._kind, text, json.dumps(self._encode(value)).encode())
        self._values[key] = value

    def remove(self, key: Key) -> Value | None:
        """Remove the value of a name, and return it; None if there was none."""
        self._store.define(self._kind, _join(key), None)
        return self._values.pop(key, None)

    def restore(self, definitions: StoredDefinitions) -> None:
        """Take over what an earlier run stored."""
        for (kind, text), value in definitions.items():
            if kind == self._kind:
                self._values[_split(text)] = self._decode(json.loads(value))  # type: ignore[index]


def _join(key: str | tuple[str, ...]) -> str:
    names = (key,) if isinstance(key, str) else key
    for name in names:
        if "\0" in name:
            raise PreconditionFailed(f"a name holds the character NUL: {name!r}")
    return "\0".join(names)


def _split(text: str) -> str | tuple[str, ...]:
    names = tuple(text.split("\0"))
    return names[0] if len(names) == 1 else names
