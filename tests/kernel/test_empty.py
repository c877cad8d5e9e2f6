"""What a run has none of costs it nothing, and no run can leave anything in what all runs share."""

from __future__ import annotations

import ast
import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import anabranch.kernel
from anabranch.kernel.empty import EMPTY, EmptyDict
from anabranch.kernel.routing import names_for, names_of_run
from anabranch.kernel.state import Scope, State, StepTally, Timers, decode_state, encode_state
from anabranch.runtime.live_run import LiveRun

from .driver import Run
from .nets import net, step
from .random_drive import Drive

KERNEL = Path(anabranch.kernel.__file__).parent


def shared_fields(kind: type[msgspec.Struct]) -> list[str]:
    """The fields that are the shared mapping until something is put in."""
    return [field.name for field in msgspec.structs.fields(kind) if field.default is EMPTY]


WAYS_IN: dict[str, Callable[[Any], object]] = {
    "an item": lambda empty: empty.__setitem__("key", 1),
    "setdefault": lambda empty: empty.setdefault("key", 1),
    "update": lambda empty: empty.update(key=1),
    "update with nothing": lambda empty: empty.update(),
    "made again": lambda empty: empty.__init__({"key": 1}),
    "made with entries": lambda empty: type(empty)({"key": 1}),
    "made from keys": lambda empty: type(empty).fromkeys(["key"]),
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_nothing_can_be_put_into_the_shared_empty_mapping(way: str) -> None:
    with pytest.raises(TypeError):
        WAYS_IN[way](EMPTY)
    assert not EMPTY


def test_every_method_of_a_dict_that_adds_entries_is_refused_or_makes_a_new_dict() -> None:
    """A method that Python adds to `dict` one day is looked at here first."""
    of_readers = {
        "__class__", "__class_getitem__", "__contains__", "__delattr__", "__delitem__", "__dir__",
        "__doc__", "__eq__", "__format__", "__ge__", "__getattribute__", "__getitem__",
        "__getstate__", "__gt__", "__hash__", "__init_subclass__", "__iter__", "__le__", "__len__",
        "__lt__", "__ne__", "__new__", "__or__", "__reduce__", "__reduce_ex__", "__repr__",
        "__reversed__", "__ror__", "__setattr__", "__sizeof__", "__str__", "__subclasshook__",
        "clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "values",
    }  # fmt: skip
    assert set(dir(dict)) - of_readers == vars(EmptyDict).keys() & set(dir(dict)) - {"__doc__"}


def test_entries_go_into_a_new_dict_and_then_into_that_one() -> None:
    state, other = State(), State()
    state.held |= {1: True}
    mine = state.held
    assert type(mine) is dict
    state.held |= {2: True}
    assert state.held is mine
    assert mine == {1: True, 2: True}
    assert other.held is EMPTY
    assert not EMPTY


def test_it_reads_like_any_other_dict() -> None:
    assert EMPTY == {}
    assert isinstance(EMPTY, dict)
    assert EMPTY.pop("key", None) is None
    assert EMPTY.get("key", 3) == 3
    assert not list(EMPTY.items())
    assert type(EMPTY | {"key": 1}) is dict
    assert type(EMPTY.copy()) is dict
    assert copy.deepcopy(EMPTY) == pickle.loads(pickle.dumps(EMPTY)) == {}
    assert msgspec.json.encode(EMPTY) == b"{}"
    assert type(msgspec.to_builtins(EMPTY)) is dict


def test_a_state_without_anything_is_written_and_compared_as_it_always_was() -> None:
    """Also one that was read from a snapshot, which has mappings of its own, takes entries."""
    read = decode_state(encode_state(State()))
    assert read == State()
    assert encode_state(read) == encode_state(State())
    fields = msgspec.json.decode(encode_state(State()))
    assert all(fields[name] == {} for name in shared_fields(State))
    read.gates |= {}
    assert type(read.gates) is dict


def test_a_new_state_makes_no_container_that_most_runs_have_no_use_for() -> None:
    fresh = State()
    own = [
        name for name in fresh.__struct_fields__
        if type(getattr(fresh, name)) in (dict, list, set)
    ]  # fmt: skip
    assert own == ["tokens", "scopes", "phases", "steps"]
    assert shared_fields(Scope) == ["takes", "barriers"]
    assert shared_fields(StepTally) == ["earlier"]
    assert shared_fields(Timers) == ["due"]
    assert shared_fields(LiveRun) == ["at_work"]


@pytest.mark.parametrize("seed", range(20))
def test_no_run_leaves_anything_in_what_all_runs_share(seed: int) -> None:
    """A write that goes another way than by `|=` raises in the middle of the run."""
    Drive(seed).to_the_end()
    assert not EMPTY


def test_expressions_and_work_meet_plain_dicts() -> None:
    """Some compare types, and what a tool is given is its own to change."""
    run = Run(net(step("a")))
    (token,) = run.state.tokens.values()
    assert token.args is token.payload is EMPTY
    for names in (names_of_run(run.state), names_for(run.state, token)):
        assert not [name for name, value in names.items() if type(value) is EmptyDict]


# -- the code --------------------------------------------------------------------------------------


def puts_in(node: ast.AST, fields: set[str]) -> Iterator[str]:
    """The fields among these into which this puts entries otherwise than by `|=`."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        owner: ast.expr = node.value
    elif isinstance(node, ast.Attribute) and node.attr in ("setdefault", "update"):
        owner = node.value
    else:
        return
    if isinstance(owner, ast.Attribute) and owner.attr in fields:
        yield owner.attr


def test_the_kernel_puts_entries_into_shared_fields_in_one_way_only() -> None:
    """Any other way works for a run that has entries there and fails for its first one.

    `evolve_provenance` changes marks beside the state, which have mappings of their own.
    """
    fields = {name for kind in (State, Scope, StepTally, Timers) for name in shared_fields(kind)}
    modules = {KERNEL / "state.py", *KERNEL.glob("evolve*.py")} - {KERNEL / "evolve_provenance.py"}
    wrong = [
        f"{path.name}:{node.lineno} {name}"  # type: ignore[attr-defined]
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in puts_in(node, fields)
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("state.held[1] = True", ["held"]),
        ("state.scopes[1].barriers['a'] = 2", ["barriers"]),
        ("gate = state.gates['g'] = 3", ["gates"]),
        ("state.waits.setdefault('a', {})", ["waits"]),
        ("state.waits['a'][1] = True", []),
        ("state.held |= {1: True}", []),
        ("del state.held[1]", []),
        ("state.tokens[1] = token", []),
    ],
)
def test_the_check_itself_sees_what_it_should(code: str, found: list[str]) -> None:
    fields = {*shared_fields(State), *shared_fields(Scope)}
    assert [name for node in ast.walk(ast.parse(code)) for name in puts_in(node, fields)] == found
