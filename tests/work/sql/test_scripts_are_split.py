"""A script becomes the statements its author meant, whatever stands inside them."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.work.sql import task
from anabranch.work.sql.task import read_task, read_task_aside
from anabranch.work.sql.text import DUCKDB, POSTGRES, SQLITE, Flavour, Statement, split
from costs import operations


def texts(script: str, flavour: Flavour = POSTGRES) -> list[str]:
    return [statement.text for statement in split(script, flavour)]


@pytest.mark.parametrize("flavour", [SQLITE, POSTGRES, DUCKDB])
@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("select 1", 1),
        ("select 1;", 1),
        (" ; ;; select 1 ;; ; select 2", 2),
        ("", 0),
        ("-- nothing; here\n/* or; here */ ;", 0),
        ("select ';'; select ';;'", 2),
        ("select 'it''s; fine'; select 2", 2),
        ('select ";" as "a;""b"; select 2', 2),
        ("select 1 -- one; two\n; select 2", 2),
        ("select 1 /* a; 'b */; select 2", 2),
        ("select (1; 2); select 3", 2),  # whatever that is, it is the database's to refuse
        ("select 'never ends; select 2", 1),
        ("select 1 /* never ends; select 2", 1),
        ("select 'a\\'; select 2", 2),  # a backslash is an ordinary character
    ],
)
def test_semicolons_that_end_a_statement(script: str, count: int, flavour: Flavour) -> None:
    assert len(texts(script, flavour)) == count


def test_bodies_between_dollars() -> None:
    script = """
        create function f() returns int as $$ begin; return 1; end $$ language plpgsql;
        do $tag$ select $$ ; $$; $tag$;
        select $1, a$b$c; select $x$ never ends; ;
    """
    assert len(texts(script, POSTGRES)) == 4
    assert len(texts("select '$$'; select '$$'", POSTGRES)) == 2
    assert len(texts("select $$;$$; select 2", DUCKDB)) == 2
    assert len(texts("select $$;$$; select 2", SQLITE)) == 3  # no such thing there


def test_strings_with_escapes() -> None:
    assert len(texts(r"select E'it\'s; fine'; select 2")) == 2
    assert len(texts(r"select nameE'x\'; select 2")) == 2


def test_comments_nest_where_the_database_lets_them() -> None:
    script = "/* a /* b */ ; */ select 1; select 2"
    assert len(texts(script, POSTGRES)) == 2
    assert texts(script, SQLITE) == ["*/ select 1", "select 2"]
    assert texts("/*" * 50_000 + ";") == []


def test_quoted_names_of_sqlite() -> None:
    assert len(texts("select [a;b], `c;d` from t; select 2", SQLITE)) == 2
    assert len(texts("select a[1]; select 2", POSTGRES)) == 2


def test_bodies_of_triggers_and_routines_stay_together() -> None:
    trigger = """
        create trigger t after insert on a begin
            update b set n = case when n > 1 then 0 else 1 end; delete from c;
        end;
        select 1
    """
    assert len(texts(trigger, SQLITE)) == 2
    routine = "create or replace procedure p() begin atomic select 1; select 2; end; select 3"
    assert len(texts(routine, POSTGRES)) == 2
    assert len(texts("create trigger x before update on t execute function f(); select 1")) == 2
    assert len(texts("create table begin_end (n int); select 1")) == 2


@pytest.mark.parametrize(
    ("text", "verb", "reads"),
    [
        ("select 1", "SELECT", True),
        ("  -- why\n (select 1)", "SELECT", True),
        ("with x as (select 1) select * from x", "WITH", True),
        ("with x as (delete from t returning *) select * from x", "WITH", False),
        ("with x as (select 'delete') select 1", "WITH", True),
        ("insert into t values (1) returning a", "INSERT", False),
        ("values (1)", "VALUES", True),
        ("vacuum", "VACUUM", False),
    ],
)
def test_what_a_statement_does(text: str, verb: str, reads: bool) -> None:
    (statement,) = split(text, POSTGRES)
    assert (statement.verb, statement.reads) == (verb, reads)


def test_a_large_script_is_split_in_no_time() -> None:
    script = "insert into t values (1, 'a;b', (2));\n" * 20_000
    begin = time.thread_time()
    assert len(texts(script)) == 20_000
    assert time.thread_time() - begin < 2


# -- the inputs of a task --------------------------------------------------------------------


def commands(**inputs: Any) -> list[tuple[str, Any]]:
    read = read_task(inputs, POSTGRES)
    return [(command.statement.text, command.params) for command in read.commands]


def test_commands_come_under_several_names() -> None:
    assert commands(command="select 1") == commands(query="select 1")
    assert commands(commands=["select 1", "select 2; select 3"])[2] == ("select 3", None)
    coded = base64.b64encode(b"select 1").decode()
    assert commands(command_b64=coded) == commands(query_b64=coded) == [("select 1", None)]
    assert commands(commands_b64=[coded]) == [("select 1", None)]


@pytest.mark.parametrize("flavour", [SQLITE, POSTGRES, DUCKDB])
def test_a_body_that_never_ends_is_looked_at_once(flavour: Flavour) -> None:
    """Each of its semicolons had all of it read again: sixteen kilobytes took ten seconds."""

    def cost(count: int) -> int:
        return operations(lambda: split("create trigger t begin " + "a;" * count, flavour))

    assert cost(800) < 3 * cost(400)


def test_a_long_script_is_taken_apart_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = set[bool]()

    def note_and_split(script: str, flavour: Flavour) -> list[Statement]:
        threads.add(threading.current_thread() is threading.main_thread())
        return split(script, flavour)

    monkeypatch.setattr(task, "split", note_and_split)
    script = "select 1;" * 10_000
    for given in ({"command": script}, {"commands": [{"command": script}]}):
        threads.clear()
        read = asyncio.run(read_task_aside(given, SQLITE))
        assert (len(read.commands), threads) == (10_000, {False})
    with pytest.raises(InputError, match="at most 100,000 statements"):
        split("a;" * 100_001, SQLITE)


def test_parameters_belong_to_one_statement_or_have_names() -> None:
    assert commands(query="select %s", params=[1]) == [("select %s", [1])]
    named = commands(command="select %(a)s; select %(a)s", params={"a": 1})
    assert [params for _, params in named] == [{"a": 1}, {"a": 1}]
    own = commands(commands=[{"command": "select %s", "params": [1]}, "select 2"])
    assert own == [("select %s", [1]), ("select 2", None)]


def test_a_transaction_around_the_commands_is_what_they_get_anyway() -> None:
    assert commands(command="BEGIN; select 1; COMMIT;") == [("select 1", None)]
    assert commands(command="begin transaction; select 1; end") == [("select 1", None)]
    assert len(commands(command="begin; select 1; commit", autocommit=True)) == 3
    assert len(commands(command="savepoint a; rollback to a")) == 2


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "takes one of command, commands, query (or with _b64); it has none"),
        ({"command": "a", "query": "b"}, "it has command and query"),
        ({"command": 5}, "command must be text"),
        ({"commands": ["a", 5]}, "commands[1] must be text"),
        ({"commands": [{}]}, "commands[0] has no command"),
        ({"command_b64": "*"}, "command_b64 is not base64"),
        ({"command": "-- nothing"}, "there is no SQL statement in it"),
        ({"command": "a; b", "params": [1]}, "a list of params fits one statement"),
        ({"commands": ["a", "b"], "params": [1]}, "a list of params fits one statement"),
        ({"command": "a", "params": 3}, "params must be a list or a mapping"),
        ({"command": "a", "timeout": 0}, "timeout must be a time above zero"),
        ({"command": "a", "autocommit": "maybe"}, "autocommit must be true or false"),
        ({"command": "a; commit; b"}, "COMMIT does not fit"),
        ({"command": "begin isolation level serializable; a"}, "BEGIN does not fit"),
    ],
)
def test_bad_inputs_are_named(inputs: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as raised:
        read_task(inputs, POSTGRES)
    assert words in raised.value.message
