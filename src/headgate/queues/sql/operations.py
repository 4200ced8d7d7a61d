"""Every operation on the SQL databases, each written once, over the statements of a dialect.

Core → Settling, Publishing → Claiming → Looking, and Publishing → Declaring. A dialect that can do something better
overrides it.
"""

from __future__ import annotations

from headgate.queues.sql.browse import Looking
from headgate.queues.sql.declare import Declaring


class SqlOperations(Declaring, Looking):
    """The operations of the contract, for any dialect."""
