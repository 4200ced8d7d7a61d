"""Many filters against one message or one batch: which subscriptions and bindings match."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.matching.batch import BatchChecks as BatchChecks
    from headgate.matching.batch import CodedAnswers as CodedAnswers
    from headgate.matching.batch import Ints as Ints
    from headgate.matching.batch import RowNumbers as RowNumbers
    from headgate.matching.batch import Selections as Selections
    from headgate.matching.batch import distinct_values as distinct_values
    from headgate.matching.batch import match_rows as match_rows
    from headgate.matching.batch import match_topics as match_topics
    from headgate.matching.batch import passing_rows as passing_rows
    from headgate.matching.batch import rows_by_code as rows_by_code
    from headgate.matching.groups import MemberGroup as MemberGroup
    from headgate.matching.groups import Slot as Slot
    from headgate.matching.groups import exclude as exclude
    from headgate.matching.groups import include as include
    from headgate.matching.groups import merge as merge
    from headgate.matching.groups import parts_of as parts_of
    from headgate.matching.groups import unite as unite
    from headgate.matching.index import PRESENT as PRESENT
    from headgate.matching.index import EqualityIndex as EqualityIndex
    from headgate.matching.index import PairCount as PairCount
    from headgate.matching.index import Pairs as Pairs
    from headgate.matching.index import Presence as Presence
    from headgate.matching.matcher import Matcher as Matcher
    from headgate.matching.residuals import Checks as Checks
    from headgate.matching.residuals import OpenChecks as OpenChecks
    from headgate.matching.residuals import add_passing as add_passing
    from headgate.matching.trie import TopicTrie as TopicTrie
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "batch": [
                "BatchChecks",
                "CodedAnswers",
                "Ints",
                "RowNumbers",
                "Selections",
                "match_rows",
                "distinct_values",
                "match_topics",
                "passing_rows",
                "rows_by_code",
            ],
            "groups": ["MemberGroup", "Slot", "exclude", "include", "merge", "parts_of", "unite"],
            "index": ["EqualityIndex", "PRESENT", "PairCount", "Pairs", "Presence"],
            "matcher": ["Matcher"],
            "residuals": ["Checks", "OpenChecks", "add_passing"],
            "trie": ["TopicTrie"],
        },
    )
