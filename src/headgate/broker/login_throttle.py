"""Slows down clients that guess passwords: failed logins by address and user make the next try wait."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final

FREE_TRIES: Final = 10  # of one address for one user
FREE_TRIES_OF_ADDRESS: Final = 50  # of one address for all users
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
MAX_REMEMBERED: Final = 10_000


def network_of(address: str) -> str:
    """The address that failures are counted for: of IPv6 the first 64 bits, because one client can use all addresses below."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4 or ip.ipv4_mapped is not None:
        return address
    return str(IPv6Address(int(ip) >> 64 << 64))


class LoginThrottle:
    """Counts failed logins by address and user; after some, each failure doubles a pause before the next try."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Failures, and when the next try is allowed; the least recent first.
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def allows(self, address: str, user: str) -> bool:
        """Whether a password may be tried now."""
        now, network = self._clock(), network_of(address)
        return all(
            self._failures.get(key, (0, 0.0))[1] <= now for key in ((network, user), (network, ""))
        )

    def note_failure(self, address: str, user: str) -> None:
        """Count a wrong password, for the user at this address and for the address."""
        network = network_of(address)
        if user:
            self._count((network, user), FREE_TRIES)
        self._count((network, ""), FREE_TRIES_OF_ADDRESS)

    def forget_failures(self, address: str, user: str) -> None:
        """Forget the failures of a user who logged in."""
        self._failures.pop((network_of(address), user), None)

    def _count(self, key: tuple[str, str], free: int) -> None:
        now = self._clock()
        count, until = self._failures.pop(key, (0, 0.0))
        if until and now - until > LONGEST_PAUSE_S:  # long ago
            count = 0
        count += 1
        pause = min(FIRST_PAUSE_S * 2 ** min(count - free, 10), LONGEST_PAUSE_S)
        self._failures[key] = count, now + pause if count >= free else now
        if len(self._failures) > MAX_REMEMBERED:
            self._failures.popitem(last=False)
