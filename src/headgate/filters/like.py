"""LIKE in linear time, without regular expressions.

A pattern is cut at its `%` signs. The first piece is anchored at the front, the last at the back, and for
every piece between, the leftmost place that fits is always right: nothing is tried twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

ANY_CHAR: Final = None  # what `_` becomes inside a piece
Piece: TypeAlias = tuple[str | None, ...]  # literal runs, and None for each `_`


@lru_cache(maxsize=4096)
def pieces_of(pattern: str, escape: str | None) -> tuple[Piece, ...]:
    """Cut the pattern at `%`; a pattern without `%` is one piece."""
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for c in characters:
        if c == "%" and c != escape:
            pieces.append([])
        elif c == "_" and c != escape:
            pieces[-1].append(ANY_CHAR)
        else:
            literal = next(characters) if c == escape else c
            piece = pieces[-1]
            if piece and piece[-1] is not None:
                piece[-1] += literal
            else:
                piece.append(literal)
    middle = [tuple(p) for p in pieces[1:-1] if p]  # `%%` means the same as `%`
    ends = (
        [tuple(pieces[0])] if len(pieces) == 1 else [tuple(pieces[0]), *middle, tuple(pieces[-1])]
    )
    return tuple(ends)


def width(piece: Piece) -> int:
    """Count the characters that a piece matches."""
    return sum(1 if part is None else len(part) for part in piece)


def literal_prefix(pattern: str, escape: str | None) -> str:
    """Return the text that every match begins with; empty when the pattern begins with a wildcard."""
    first = pieces_of(pattern, escape)[0]
    return first[0] if first and first[0] is not None else ""


def plain_text(pattern: str, escape: str | None) -> str | None:
    """Return the only text that the pattern matches; None when it holds a wildcard."""
    pieces = pieces_of(pattern, escape)
    if len(pieces) > 1 or ANY_CHAR in pieces[0]:
        return None
    return pieces[0][0] if pieces[0] else ""


@lru_cache(maxsize=4096)
def compile_like(pattern: str, escape: str | None) -> Callable[[str], bool]:
    """Compile the pattern to a function that tells whether a string matches."""
    pieces = pieces_of(pattern, escape)
    if any(part is None for piece in pieces for part in piece):
        return _compile_pieces(pieces)
    texts = ["".join(part or "" for part in piece) for piece in pieces]
    return _compile_texts(texts)


def _compile_texts(texts: list[str]) -> Callable[[str], bool]:
    if len(texts) == 1:
        return texts[0].__eq__
    first, *middle, last = texts
    if middle:
        return _compile_pieces(tuple((text,) if text else () for text in texts))
    if not first and not last:
        return lambda value: True
    if not last:
        return lambda value: value.startswith(first)
    if not first:
        return lambda value: value.endswith(last)
    least = len(first) + len(last)
    return lambda value: len(value) >= least and value.startswith(first) and value.endswith(last)


def _compile_pieces(pieces: tuple[Piece, ...]) -> Callable[[str], bool]:
    first, last = pieces[0], pieces[-1]
    first_width, last_width = width(first), width(last)
    if len(pieces) == 1:
        return lambda value: len(value) == first_width and _fits(value, 0, first)
    finders = [_finder(piece) for piece in pieces[1:-1]]

    def like(value: str) -> bool:
        end = len(value) - last_width
        if end < first_width or not _fits(value, 0, first) or not _fits(value, end, last):
            return False
        at = first_width
        for find in finders:
            at = find(value, at, end)
            if at < 0:
                return False
        return True

    return like


def _fits(value: str, at: int, piece: Piece) -> bool:
    for part in piece:
        if part is None:
            at += 1
        elif value.startswith(part, at):
            at += len(part)
        else:
            return False
    return True


def _finder(piece: Piece) -> Callable[[str, int, int], int]:
    """Compile a function that finds the end of the leftmost match of `piece` in value[start:end], or -1."""
    if len(piece) == 1 and piece[0] is not None:
        text, size = piece[0], len(piece[0])

        def find(value: str, start: int, end: int) -> int:
            at = value.find(text, start, end)
            return -1 if at < 0 else at + size

        return find
    if all(part is None for part in piece):
        count = len(piece)
        return lambda value, start, end: start + count if start + count <= end else -1
    return _shift_and_finder(piece)


def _shift_and_finder(piece: Piece) -> Callable[[str, int, int], int]:
    # Bit-parallel: bit i of the state says that the piece's first i+1 characters end here. One step per
    # character of the text whatever the pattern, so a hostile mix of literals and `_` stays linear.
    everywhere = 0
    places: dict[str, int] = {}
    position = 0
    for part in piece:
        for c in part if part is not None else (None,):
            if c is None:
                everywhere |= 1 << position
            else:
                places[c] = places.get(c, 0) | 1 << position
            position += 1
    masks = {c: bits | everywhere for c, bits in places.items()}
    accept = 1 << (position - 1)

    def find(value: str, start: int, end: int) -> int:
        state = 0
        for at in range(start, end):
            state = (state << 1 | 1) & masks.get(value[at], everywhere)
            if state & accept:
                return at + 1
        return -1

    return find
