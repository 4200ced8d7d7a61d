from headgate.columns import (
    SYSTEM_COLUMNS,
    column_name,
    field_key,
    header_of,
    is_header_column,
    is_typed_name,
    parse_column_name,
    parse_field_key,
)
from headgate.filters import SYS_KINDS, VIEWS, Field

HEADERS = ["region", "", "a.b", "h.s.x", "topic", "ü"]
TYPED = [
    *(Field("header", name) for name in HEADERS),
    Field("property", "subject"),
    Field("property", "type"),
]


def test_a_typed_column_name_parses_to_the_field_and_view_it_was_made_of():
    for field in TYPED:
        for view in VIEWS:
            name = column_name(field, view)
            assert parse_column_name(name) == (field, view)
            assert is_typed_name(name)
            assert is_header_column(name) == (field.scope == "header")
            assert header_of(name) == field.name


def test_a_system_field_is_a_column_of_its_own_name():
    for name, kind in SYS_KINDS.items():
        assert column_name(Field("sys", name), kind) == name
        assert parse_column_name(name) == (Field("sys", name), kind)
        assert not is_typed_name(name)


def test_other_columns_belong_to_no_field():
    for name in (
        "offset",
        "payload",
        "overflow",
        "",
        "h.",
        "h.s",
        "h.x.a",
        "q.s.a",
        "h_s_a",
        "has.",
    ):
        assert parse_column_name(name) == (None, None)
        assert not is_typed_name(name)


def test_a_field_key_parses_to_the_field_it_names():
    for field in [*TYPED, *(Field("sys", name) for name in SYS_KINDS)]:
        assert parse_field_key(field_key(field)) == field


def test_the_columns_of_a_file_are_the_system_fields_between_offset_and_payload():
    first, *middle, last = SYSTEM_COLUMNS
    assert (first, last) == ("offset", "payload")
    assert sorted(middle) == sorted(SYS_KINDS)


def test_column_names_of_files_parse_to_their_fields():
    assert parse_column_name("h.s.a.b.c") == (Field("header", "a.b.c"), "string")
    assert parse_column_name("h.o.") == (Field("header", ""), "opaque")
    assert parse_column_name("p.i.group_sequence") == (
        Field("property", "group_sequence"),
        "int",
    )
    assert parse_column_name("priority") == (Field("sys", "priority"), "int")
    assert [parse_column_name(name) for name in ("offset", "payload", "overflow")] == [
        (None, None)
    ] * 3
    assert field_key(Field("header", "a.b")) == "h.a.b"
