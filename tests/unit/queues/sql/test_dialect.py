"""The migrations and statements of both dialects."""

from headgate.queues.sql.dialect import migrations_of, statements_of


def test_both_dialects_have_the_same_migrations():
    numbers = [number for number, _ in migrations_of("postgres")]
    assert numbers == [number for number, _ in migrations_of("sqlite")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_no_statement_of_postgres_names_a_schema():
    assert not [
        name
        for name, text in statements_of("postgres").items()
        if "headgate." in text.replace("'headgate.", "")
    ]
