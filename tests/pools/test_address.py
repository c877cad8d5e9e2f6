"""Addresses of pools: what is read from them, and what is said about mistakes without quoting."""

from __future__ import annotations

import pytest

from anabranch.errors import InputError
from anabranch.pools.address import PoolOptions, parse_pools, pools_of, require_elsewhere


def test_every_form_of_address_is_read() -> None:
    pools = parse_pools(
        "a=dask://host, b=dask+tls://10.0.0.1:9000 c=ray://head,d=ray:auto\n e = ray:[::1]:7000"
    )
    found = {name: (one.engine, one.address, one.shown) for name, one in pools.items()}
    assert found == {
        "a": ("dask", "tcp://host:8786", "dask://host:8786"),
        "b": ("dask", "tls://10.0.0.1:9000", "dask+tls://10.0.0.1:9000"),
        "c": ("ray", "ray://head:10001", "ray://head:10001"),
        "d": ("ray", "auto", "ray:auto"),
        "e": ("ray", "[::1]:7000", "ray:[::1]:7000"),
    }


def test_every_option_is_read() -> None:
    text = (
        "heavy=dask://host?queue=32&values=s3://bucket/work&tools=shop.a,shop.b"
        "&resources=GPU:1,disk:2.5&priority=-3&restart=yes&grace=2.5&begin=9, next=ray:auto"
        '?runtime_env={"pip": ["a", "b=1"]}&values=server'
    )
    heavy, following = parse_pools(text).values()
    assert heavy == PoolOptions(
        name="heavy",
        engine="dask",
        address="tcp://host:8786",
        shown="dask://host:8786",
        queue=32,
        values="s3://bucket/work",
        tools=("shop.a", "shop.b"),
        resources={"GPU": 1.0, "disk": 2.5},
        priority=-3,
        restart=True,
        grace_seconds=2.5,
        begin_seconds=9.0,
    )
    assert following.runtime_env == {"pip": ["a", "b=1"]}
    assert following.values == "server"


def test_nothing_is_no_pool() -> None:
    assert parse_pools("") == parse_pools(" , ") == {}


def test_a_program_gives_a_mapping() -> None:
    pools = pools_of({"a pool": "dask://host"})
    assert pools["a pool"].name == "a pool"
    assert pools_of(pools) == pools


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("heavy", "NAME=ADDRESS"),
        ("=dask://host", "NAME=ADDRESS"),
        ("a=dask://h, a=ray:auto", "given twice"),
        ("a=dsk://host", "did you mean 'dask'"),
        ("a=dask:host:1", "its address needs 'dask://'"),
        ("a=host:8786", "not known"),
        ("a=", "names no engine"),
        ("a=dask://", "a host and a port"),
        ("a=dask://host:99999", "a host and a port"),
        ("a=ray:/host", "its address needs 'ray://'"),
        ("a=dask://host/path", "a host and a port"),
        ("a=dask://h?queu=1", "did you mean 'queue'"),
        ("a=dask://h?queue=-1", "whole number of 0 to"),
        ("a=dask://h?queue=1&queue=2", "given twice"),
        ("a=dask://h?values=serve", "`cluster`, `server`"),
        ("a=dask://h?tools=shop/a", "names of modules"),
        ("a=dask://h?resources=GPU", "names and amounts"),
        ("a=ray:auto?priority=1", "Dask has the option"),
        ("a=dask://h?runtime_env={}", "Ray has the option"),
        ("a=ray:auto?runtime_env=[1]", "JSON object"),
        ("a=dask://h?grace=0", "above zero"),
        ("a=dask://h?begin=soon", "number of seconds"),
    ],
)
def test_a_mistake_is_named_with_its_pool(text: str, said: str) -> None:
    with pytest.raises(InputError, match="pool") as caught:
        parse_pools(text)
    assert said in caught.value.message
    assert caught.value.code == "pool_address"


@pytest.mark.parametrize(
    "text",
    [
        "a=dask://me:hunter2@host:8786",
        "a=ray:me:hunter2@host",
        "a=sftp://me:hunter2@host",
        "a=dask://h?values=sftp://me:x&hunter2@host",
        "a=dask://h?values=hunter2",
        "a=ray:auto?runtime_env=hunter2",
        "hunter2://x",
    ],
)
def test_no_message_quotes_what_may_be_a_password(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_pools(text)
    assert "hunter2" not in caught.value.message


def test_options_show_no_password() -> None:
    one = parse_pools('a=ray:auto?values=sftp://me:hunter2@host/f&runtime_env={"k":"hunter2"}')["a"]
    assert "hunter2" not in repr(one) + str(one) + one.shown + one.values_shown
    assert one.values_shown == "sftp://host/f"


@pytest.mark.parametrize("here", ["a", "b, a", "*"])
def test_a_pool_is_done_by_a_cluster_or_by_this_process(here: str) -> None:
    with pytest.raises(InputError, match="pools_here"):
        require_elsewhere(parse_pools("a=ray:auto"), here)
