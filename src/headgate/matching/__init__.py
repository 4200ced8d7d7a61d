"""Many filters against one message or one batch: which subscriptions and bindings want it."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.matching.batch import Alike as Alike
    from headgate.matching.batch import Asked as Asked
    from headgate.matching.batch import Bools as Bools
    from headgate.matching.batch import Ints as Ints
    from headgate.matching.batch import Rows as Rows
    from headgate.matching.batch import by_code as by_code
    from headgate.matching.batch import checked_rows as checked_rows
    from headgate.matching.batch import match_rows as match_rows
    from headgate.matching.batch import match_topics as match_topics
    from headgate.matching.groups import Group as Group
    from headgate.matching.groups import Slot as Slot
    from headgate.matching.groups import exclude as exclude
    from headgate.matching.groups import gathered as gathered
    from headgate.matching.groups import include as include
    from headgate.matching.groups import merged as merged
    from headgate.matching.groups import parts_of as parts_of
    from headgate.matching.index import PRESENT as PRESENT
    from headgate.matching.index import EqualityIndex as EqualityIndex
    from headgate.matching.index import PairCount as PairCount
    from headgate.matching.index import Presence as Presence
    from headgate.matching.index import Wanted as Wanted
    from headgate.matching.matcher import Matcher as Matcher
    from headgate.matching.residuals import Checked as Checked
    from headgate.matching.residuals import Checks as Checks
    from headgate.matching.residuals import add_passing as add_passing
    from headgate.matching.selections import Selections as Selections
    from headgate.matching.trie import TopicTrie as TopicTrie
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "batch": [
                "Alike",
                "Asked",
                "Bools",
                "Ints",
                "Rows",
                "by_code",
                "checked_rows",
                "match_rows",
                "match_topics",
            ],
            "groups": ["Group", "Slot", "exclude", "gathered", "include", "merged", "parts_of"],
            "index": ["EqualityIndex", "PRESENT", "PairCount", "Presence", "Wanted"],
            "matcher": ["Matcher"],
            "residuals": ["Checked", "Checks", "add_passing"],
            "selections": ["Selections"],
            "trie": ["TopicTrie"],
        },
    )
