"""Checks of what callers give. A refusal names the argument, shows what was given, and says what to give instead.

`refuse` makes the error of the package that asks: StreamOptionsError, QueueOptionsError.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TypeAlias

Refuse: TypeAlias = Callable[[str], Exception]


def check_span(name: str, value: object, refuse: Refuse, *, least: timedelta | None = None) -> None:
    """Refuse anything but a timedelta, of at least `least`: a bare number does not say its unit."""
    if not isinstance(value, timedelta):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        example = f"timedelta(seconds={value})" if number else "timedelta(seconds=30)"
        raise refuse(f"{name}: give a timedelta, for example {example}, not {value!r}")
    if least is not None and value < least:
        what = "be negative" if least == timedelta(0) else f"be shorter than {least}"
        raise refuse(f"{name}: cannot {what}, as {value} is")


def check_count(name: str, value: object, refuse: Refuse, *, least: int = 0) -> None:
    """Refuse anything but an integer of at least `least`."""
    if type(value) is not int or value < least:
        raise refuse(f"{name}: give an integer of at least {least:,}, not {value!r}")


def check_flag(name: str, value: object, refuse: Refuse) -> None:
    """Refuse anything but True and False: the text "no" would count as True."""
    if not isinstance(value, bool):
        raise refuse(f"{name}: give True or False, not {value!r}")


def check_function(name: str, value: object, refuse: Refuse, example: str) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise refuse(f"{name}: give a function, for example {example}, not {value!r}")


def list_texts(name: str, value: object, refuse: Refuse) -> tuple[str, ...]:
    """Return a list of texts as a tuple. A bare text is refused: it would be taken for a list of its letters."""
    if isinstance(value, str):
        raise refuse(f"{name}: give a list, [{value!r}], not the text {value!r}")
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise refuse(f"{name}: give a list of texts, not {value!r}")
    texts = tuple(value)
    for text in texts:
        if not isinstance(text, str):
            raise refuse(f"{name}: give a list of texts; {text!r} is not one")
    return texts


def nearest(given: str, known: Iterable[str]) -> str | None:
    """Return the one of these names that the given one was probably meant to be."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), names, n=1)
    return names[near[0]] if near else None


def suggest(given: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that is nearest to the given one, or at all of them."""
    names = list(known)
    near = nearest(given, names)
    return f"there are {', '.join(names)}" if near is None else f"did you mean {near!r}?"
