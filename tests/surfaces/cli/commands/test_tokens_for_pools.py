"""`anabranch token create --pool`: a token for the jobs of some pools."""

from __future__ import annotations

import json

from ..support import Here


def test_the_pools_of_a_token_are_given_and_listed(here: Here) -> None:
    words = ("token", "create", "--scope", "work", "--pool", "gpu", "--pool", "eu", "--name", "w")
    made = here.run(*words)
    assert made.code == 0, made.err
    assert "(work, for eu,gpu)" in made.err
    listed = here.run("token", "list", "--json")
    assert [one["pools"] for one in json.loads(listed.out)] == [["eu", "gpu"]]
    assert "eu,gpu" in here.run("token", "list").out


def test_pools_go_with_the_scope_work(here: Here) -> None:
    done = here.run("token", "create", "--scope", "read", "--pool", "gpu")
    assert (done.code, done.out) == (2, "")
    assert "only a token with the scope work" in done.err


def test_the_help_says_that_operate_runs_code(here: Here) -> None:
    told = " ".join(here.run("token", "create", "--help").out.split())
    assert "operate runs code on the server" in told
