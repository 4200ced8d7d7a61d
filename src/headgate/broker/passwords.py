"""Passwords, as they are kept: scrypt, or RabbitMQ's salted hashes until the next login.

A value of scrypt is three bytes, log2(n), r and p, then 16 bytes of salt and 32 of the key.
One of RabbitMQ's is four bytes of salt, then the hash of salt and password.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.broker.refusals import PreconditionFailed

SCRYPT: Final = "headgate_scrypt"
SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
_DIGESTS: Final[dict[str, Callable[[bytes], Any]]] = {
    SHA256: hashlib.sha256,
    SHA512: hashlib.sha512,
}

# About 150 ms of one core, and 16 MB.
LOG_N: Final = 14
BLOCKS: Final = 8
PARALLEL: Final = 5
SALT_BYTES: Final = 16
KEY_BYTES: Final = 32
RABBIT_SALT_BYTES: Final = 4
MAX_MEMORY: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The stored hash of a password. Its value is not part of its repr."""

    algorithm: str
    value: bytes = field(repr=False)

    def verify(self, password: str) -> bool:
        """Whether this is the password; takes long, on purpose."""
        if self.algorithm == SCRYPT:
            log_n, blocks, parallel = self.value[:3]
            salt, key = self.value[3 : 3 + SALT_BYTES], self.value[3 + SALT_BYTES :]
            return hmac.compare_digest(_scrypt(password, salt, log_n, blocks, parallel), key)
        salt, key = self.value[:RABBIT_SALT_BYTES], self.value[RABBIT_SALT_BYTES:]
        return hmac.compare_digest(_DIGESTS[self.algorithm](salt + password.encode()).digest(), key)

    @property
    def is_current(self) -> bool:
        """Whether it has the form in which new passwords are stored."""
        return self.algorithm == SCRYPT and self.value[:3] == bytes((LOG_N, BLOCKS, PARALLEL))

    def to_text(self) -> str:
        return b64encode(self.value).decode()


def hash_password(password: str) -> PasswordHash:
    """A new hash of a password; takes long, on purpose."""
    salt = os.urandom(SALT_BYTES)
    key = _scrypt(password, salt, LOG_N, BLOCKS, PARALLEL)
    return PasswordHash(SCRYPT, bytes((LOG_N, BLOCKS, PARALLEL)) + salt + key)


def hash_quickly(password: str, algorithm: str = SHA256) -> PasswordHash:
    """A hash in RabbitMQ's form: for tools that ask for one, and for the default password, which is no secret."""
    salt = os.urandom(RABBIT_SALT_BYTES)
    return PasswordHash(algorithm, salt + _DIGESTS[algorithm](salt + password.encode()).digest())


def read_hash(text: str, algorithm: str | None = None) -> PasswordHash | None:
    """The hash with this text, as definitions have it; None for the empty text."""
    algorithm = algorithm or SHA256
    try:
        value = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise PreconditionFailed("password_hash is not base64") from None
    if not value:
        return None
    if algorithm == SCRYPT:
        size = 3 + SALT_BYTES + KEY_BYTES
        if len(value) != size or not (10 <= value[0] <= 20 and 1 <= value[1] <= 32 and value[2]):
            raise PreconditionFailed(f"password_hash is not one of {SCRYPT}")
    elif algorithm not in _DIGESTS:
        known = ", ".join((SHA256, SHA512, SCRYPT))
        raise PreconditionFailed(
            f"there is no hashing_algorithm '{algorithm}'; there are {known}. Set a new password for the user"
        )
    elif len(value) != RABBIT_SALT_BYTES + _DIGESTS[algorithm](b"").digest_size:
        raise PreconditionFailed(f"password_hash is not one of {algorithm}")
    return PasswordHash(algorithm, value)


def _scrypt(password: str, salt: bytes, log_n: int, blocks: int, parallel: int) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=1 << log_n,
        r=blocks,
        p=parallel,
        maxmem=MAX_MEMORY,
        dklen=KEY_BYTES,
    )
