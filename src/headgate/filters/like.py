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
    return _mixed_finder(piece)


# ---- pieces of literals and `_` ----------------------------------------------------------------------

# In characters. Up to here, one step for each costs less than finding the places of a literal.
NEAR: Final = 64
# In characters. In longer texts, the places of a literal would take too much memory.
FAR: Final = 65_536
MAX_CHARACTERS: Final = 1024  # whose places are kept for one text


def _mixed_finder(piece: Piece) -> Callable[[str, int, int], int]:
    find_near, find_far = _shift_and_finder(piece), _places_finder(piece)

    def find(value: str, start: int, end: int) -> int:
        if end - start <= NEAR or len(value) > FAR:
            return find_near(value, start, end)
        at = find_near(value, start, start + NEAR)
        return find_far(value, start, end) if at < 0 else at

    return find


def _places_finder(piece: Piece) -> Callable[[str, int, int], int]:
    # A number holds one bit for each character of the text, so one AND tests all places at once. Where a character
    # stands does not depend on the pattern: all patterns that are asked of one text share it.
    characters = [c for part in piece for c in (part or (None,))]
    literals = [(at, c) for at, c in enumerate(characters) if c is not None]
    size = len(characters)

    def find(value: str, start: int, end: int) -> int:
        known, found = _places_in(value), -1
        for at, character in literals:
            places = known.get(character)
            if places is None:
                places = _learn_places(known, value, character)
            found &= places >> (start + at)
            if not found:
                return -1
        match_end = start + (found & -found).bit_length() - 1 + size
        return match_end if match_end <= end else -1

    return find


@lru_cache(maxsize=4)
def _places_in(text: str) -> dict[str, int]:
    """Return the places found so far: bit i of a character's number says whether text[i] is that character."""
    return {}


def _learn_places(known: dict[str, int], text: str, character: str) -> int:
    if len(known) >= MAX_CHARACTERS:
        known.clear()
    places = known[character] = find_places(text, character)
    return places


def find_places(text: str, character: str) -> int:
    """Return a number whose bit i says whether text[i] is the character."""
    if character not in text:
        return 0
    if text.isascii():
        return _places_of_byte(text.encode(), ord(character))
    planes, wanted = (t.encode("utf-32-le", "surrogatepass") for t in (text, character))
    places = -1
    for plane, byte in enumerate(wanted[:3]):  # the fourth byte of a code point is always zero
        places &= _places_of_byte(planes[plane::4], byte)
    return places


def _places_of_byte(data: bytes, byte: int) -> int:
    ones = bytearray(b"0" * 256)
    ones[byte] = ord("1")
    return int(data[::-1].translate(ones), 2)


def _shift_and_finder(piece: Piece) -> Callable[[str, int, int], int]:
    # Bit i of the state says that the piece's first i+1 characters end here. One step per character of the text
    # whatever the pattern, so a hostile mix of literals and `_` stays linear.
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
