"""Rows by position, under the broker: one contract, in memory and in SQLite."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.store.contract import PREFIX_DIGITS as PREFIX_DIGITS
    from headgate.store.contract import Contents as Contents
    from headgate.store.contract import LaneFacts as LaneFacts
    from headgate.store.contract import Store as Store
    from headgate.store.contract import StoredHead as StoredHead
    from headgate.store.contract import StoredRow as StoredRow
    from headgate.store.memory import InMemoryStore as InMemoryStore
    from headgate.store.repair import Salvaged as Salvaged
    from headgate.store.repair import StoreReport as StoreReport
    from headgate.store.repair import salvage_store as salvage_store
    from headgate.store.repair import verify_store as verify_store
    from headgate.store.sqlite import SqliteStore as SqliteStore
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "contract": [
                "PREFIX_DIGITS",
                "Contents",
                "LaneFacts",
                "Store",
                "StoredHead",
                "StoredRow",
            ],
            "repair": ["Salvaged", "StoreReport", "salvage_store", "verify_store"],
            "memory": ["InMemoryStore"],
            "sqlite": ["SqliteStore"],
        },
    )
