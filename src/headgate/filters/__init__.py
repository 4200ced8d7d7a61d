"""The filter language: one frozen tree, and the compilers that push it into every engine."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.filters.builder import Condition as Condition
    from headgate.filters.builder import FilterLike as FilterLike
    from headgate.filters.builder import all_of as all_of
    from headgate.filters.builder import any_of as any_of
    from headgate.filters.builder import as_filter as as_filter
    from headgate.filters.builder import compile_filter as compile_filter
    from headgate.filters.builder import header as header
    from headgate.filters.builder import topic as topic
    from headgate.filters.compile.arrow.rows import Columns as Columns
    from headgate.filters.cost import cheapest_first as cheapest_first
    from headgate.filters.doubts import compared_kinds as compared_kinds
    from headgate.filters.doubts import kind_class as kind_class
    from headgate.filters.doubts import likely_mistakes as likely_mistakes
    from headgate.filters.explanation import DIALECTS as DIALECTS
    from headgate.filters.explanation import Explanation as Explanation
    from headgate.filters.explanation import explain as explain
    from headgate.filters.facts import ChunkNumbers as ChunkNumbers
    from headgate.filters.facts import Counts as Counts
    from headgate.filters.facts import DistinctSets as DistinctSets
    from headgate.filters.facts import Facts as Facts
    from headgate.filters.facts import FieldFacts as FieldFacts
    from headgate.filters.facts import Flags as Flags
    from headgate.filters.facts import ValueProbe as ValueProbe
    from headgate.filters.facts import ValueRange as ValueRange
    from headgate.filters.like import compile_like as compile_like
    from headgate.filters.like import literal_prefix as literal_prefix
    from headgate.filters.like import pieces_of as pieces_of
    from headgate.filters.logic import OPPOSITE as OPPOSITE
    from headgate.filters.logic import evaluate as evaluate
    from headgate.filters.logic import field_value as field_value
    from headgate.filters.logic import matches_filter as matches_filter
    from headgate.filters.nodes import FALSE as FALSE
    from headgate.filters.nodes import FILTER_TYPES as FILTER_TYPES
    from headgate.filters.nodes import KIND_OF as KIND_OF
    from headgate.filters.nodes import KINDS as KINDS
    from headgate.filters.nodes import MAX_IN_ITEMS as MAX_IN_ITEMS
    from headgate.filters.nodes import SYS_KINDS as SYS_KINDS
    from headgate.filters.nodes import TOPIC as TOPIC
    from headgate.filters.nodes import TRUE as TRUE
    from headgate.filters.nodes import VIEWS as VIEWS
    from headgate.filters.nodes import And as And
    from headgate.filters.nodes import Arith as Arith
    from headgate.filters.nodes import ArithOp as ArithOp
    from headgate.filters.nodes import Compare as Compare
    from headgate.filters.nodes import CompareOp as CompareOp
    from headgate.filters.nodes import Constant as Constant
    from headgate.filters.nodes import Exists as Exists
    from headgate.filters.nodes import Field as Field
    from headgate.filters.nodes import Filter as Filter
    from headgate.filters.nodes import In as In
    from headgate.filters.nodes import IsNull as IsNull
    from headgate.filters.nodes import Kind as Kind
    from headgate.filters.nodes import Like as Like
    from headgate.filters.nodes import Literal as Literal
    from headgate.filters.nodes import Negate as Negate
    from headgate.filters.nodes import Not as Not
    from headgate.filters.nodes import Now as Now
    from headgate.filters.nodes import Operand as Operand
    from headgate.filters.nodes import Or as Or
    from headgate.filters.nodes import Scope as Scope
    from headgate.filters.nodes import TopicMatch as TopicMatch
    from headgate.filters.nodes import View as View
    from headgate.filters.nodes import check_depth as check_depth
    from headgate.filters.nodes import depends_on_time as depends_on_time
    from headgate.filters.nodes import fields_read as fields_read
    from headgate.filters.nodes import join_terms as join_terms
    from headgate.filters.nodes import walk as walk
    from headgate.filters.normal import EXACT_AS_DOUBLE as EXACT_AS_DOUBLE
    from headgate.filters.normal import NormalFilter as NormalFilter
    from headgate.filters.normal import bind_now as bind_now
    from headgate.filters.normal import conjuncts as conjuncts
    from headgate.filters.normal import normalize as normalize
    from headgate.filters.parser import parse as parse
    from headgate.filters.parser import parse_stored as parse_stored
    from headgate.filters.printer import operand_text as operand_text
    from headgate.filters.printer import to_text as to_text
    from headgate.filters.topics import MANY as MANY
    from headgate.filters.topics import ONE as ONE
    from headgate.filters.topics import canonical as canonical
    from headgate.filters.topics import check_pattern as check_pattern
    from headgate.filters.topics import matches as matches
    from headgate.filters.topics import regex as regex
    from headgate.filters.topics import words_of as words_of
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "builder": [
                "Condition",
                "FilterLike",
                "all_of",
                "any_of",
                "as_filter",
                "compile_filter",
                "header",
                "topic",
            ],
            "compile.arrow.rows": ["Columns"],
            "cost": ["cheapest_first"],
            "doubts": ["compared_kinds", "kind_class", "likely_mistakes"],
            "explanation": ["DIALECTS", "Explanation", "explain"],
            "facts": [
                "ChunkNumbers",
                "Counts",
                "DistinctSets",
                "Facts",
                "FieldFacts",
                "Flags",
                "ValueProbe",
                "ValueRange",
            ],
            "like": ["compile_like", "literal_prefix", "pieces_of"],
            "logic": ["OPPOSITE", "evaluate", "field_value", "matches_filter"],
            "nodes": [
                "And",
                "Arith",
                "ArithOp",
                "Compare",
                "CompareOp",
                "Constant",
                "Exists",
                "FALSE",
                "FILTER_TYPES",
                "Field",
                "Filter",
                "In",
                "IsNull",
                "KINDS",
                "KIND_OF",
                "Kind",
                "Like",
                "Literal",
                "MAX_IN_ITEMS",
                "Negate",
                "Not",
                "Now",
                "Operand",
                "Or",
                "SYS_KINDS",
                "Scope",
                "TOPIC",
                "TRUE",
                "TopicMatch",
                "VIEWS",
                "View",
                "check_depth",
                "depends_on_time",
                "fields_read",
                "join_terms",
                "walk",
            ],
            "normal": ["EXACT_AS_DOUBLE", "NormalFilter", "bind_now", "conjuncts", "normalize"],
            "parser": ["parse", "parse_stored"],
            "printer": ["operand_text", "to_text"],
            "topics": ["MANY", "ONE", "canonical", "check_pattern", "matches", "regex", "words_of"],
        },
    )
