"""`anabranch.toml`: where it is found, what it may say, and what goes before it."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

import anabranch
from anabranch.errors import InputError
from anabranch.operations.settings_view import shown_settings
from anabranch.settings import PATHS, Settings
from anabranch.settings_file import NAME, VARIABLE, Origin, find, load

posix = pytest.mark.skipif(os.name != "posix", reason="modes and owners of files are POSIX's")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of their own, with a project in it; nothing is set."""
    for name in [name for name in os.environ if name.startswith("ANABRANCH_")]:
        monkeypatch.delenv(name)
    place = tmp_path.resolve() / "home"
    (place / "project" / "flows").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.chdir(place / "project")
    return place


def write(folder: Path, text: str, mode: int = 0o644) -> Path:
    file = folder / NAME
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)
    return file


def refused(text: str, home: Path, mode: int = 0o644) -> list[str]:
    """What is wrong with a file, line by line, without its path."""
    file = write(home / "project", text, mode)
    with pytest.raises(InputError) as error:
        load()
    assert error.value.code == "settings_file"
    return [line.removeprefix(f"{file}:") for line in error.value.message.splitlines()]


# -- where it is found -----------------------------------------------------------------------


def test_without_a_file_every_setting_has_its_default() -> None:
    loaded = load()
    assert (loaded.settings, loaded.origins, loaded.file) == (Settings(), {}, None)


def test_the_nearest_file_counts(home: Path) -> None:
    far, near = write(home, "jobs_max = 1"), write(home / "project", "jobs_max = 2")
    assert find(home / "project" / "flows") == near
    near.unlink()
    assert find(home / "project" / "flows") == far


def test_nothing_above_the_root_of_the_repository_is_read(home: Path) -> None:
    write(home, "jobs_max = 1")
    (home / "project" / ".git").mkdir()
    assert find(home / "project" / "flows") is None
    file = write(home / "project", "jobs_max = 2")
    assert find(home / "project" / "flows") == file


def test_nothing_above_the_home_folder_is_read(home: Path) -> None:
    write(home.parent, "jobs_max = 1")
    assert find(home / "project") is None
    assert find(home) is None


def test_outside_of_both_only_the_current_folder_counts(home: Path) -> None:
    elsewhere = home.parent / "elsewhere" / "deep"
    elsewhere.mkdir(parents=True)
    write(elsewhere.parent, "jobs_max = 1")
    assert find(elsewhere) is None
    assert find(elsewhere.parent) == elsewhere.parent / NAME


def test_a_variable_names_another_file_or_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "project", "jobs_max = 1")
    (home / "other.toml").write_text("jobs_max = 2")
    monkeypatch.setenv(VARIABLE, str(home / "other.toml"))
    assert load().settings.jobs_max == 2
    monkeypatch.setenv(VARIABLE, "")
    assert load().settings == Settings()
    monkeypatch.setenv(VARIABLE, str(home / "gone.toml"))
    with pytest.raises(InputError, match=r"gone\.toml cannot be read: No such file"):
        load()


def test_a_current_folder_that_is_gone_has_no_file(home: Path) -> None:
    gone = home / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        assert load().file is None
    finally:
        os.chdir(home)


# -- what it says ----------------------------------------------------------------------------


def test_every_setting_can_stand_in_it(home: Path) -> None:
    samples = {int: "7", float: "2.5", str: '"x"'}
    words = {
        "synchronous": "normal", "webhook_addresses": "any", "chain_rule_urls": "allow",
        "chain_execution": "send", "rpc_access": "token", "require_tokens": "yes",
        "keep_runs": "all=30d", "rate_limits": "kind:http=9/s",
    }  # fmt: skip
    lines = [
        f'{each.name} = "{words[each.name]}"'
        if each.name in words
        else f"{each.name} = {samples[type(each.default)]}"
        for each in fields(Settings)
    ]
    file = write(home / "project", "\n".join(lines), 0o600)
    loaded = load()
    for number, each in enumerate(fields(Settings), 1):
        assert getattr(loaded.settings, each.name) != each.default, each.name
        assert loaded.origins[each.name] == Origin("file", f"{file}:{number}")
    assert loaded.settings.synchronous == "NORMAL"


def test_paths_are_relative_to_the_folder_of_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home / "project", "\n".join(f'{name} = "there/x"' for name in PATHS))
    monkeypatch.chdir(home / "project" / "flows")
    settings = load().settings
    assert {getattr(settings, name) for name in PATHS} == {str(home / "project" / "there" / "x")}
    assert {name for name in PATHS if name.endswith(("_file", "_folder"))} == {
        each.name for each in fields(Settings) if each.name.endswith(("_file", "_folder"))
    }


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (":memory:", ":memory:"),
        ("postgresql://ann@db.example/runs", "postgresql://ann@db.example/runs"),
        ("/srv/runs.db", "/srv/runs.db"),
        ("~/runs.db", "HOME/runs.db"),
        ("", ""),
    ],
)
def test_a_store_that_is_no_path_stays_as_it_is(home: Path, written: str, meant: str) -> None:
    write(home / "project", f'store = "{written}"')
    assert load().settings.store == meant.replace("HOME", str(home))


def test_how_long_runs_are_kept_is_a_table_or_a_text(home: Path) -> None:
    write(home / "project", '[keep_runs]\nall = "30 d"\nfailed = "never"\n')
    assert load().settings.keep_runs == "all=30d failed=never"
    write(home / "project", 'keep_runs = "completed=30d"')
    assert load().settings.keep_runs == "completed=30d"


def test_pools_are_a_table_or_a_text(home: Path) -> None:
    write(
        home / "project", '[pools]\nheavy = "dask://host:8786?tools=a,b"\n"gpu.eu" = "ray:auto"\n'
    )
    assert load().settings.pools == "heavy=dask://host:8786?tools=a%2Cb, gpu.eu=ray:auto"
    write(home / "project", 'pools = "gpu=ray:auto"')
    assert load().settings.pools == "gpu=ray:auto"


def test_a_switch_may_be_true_or_false(home: Path) -> None:
    write(home / "project", "require_tokens = true")
    assert load().settings.require_tokens == "yes"


# -- what goes before it ---------------------------------------------------------------------


def test_the_environment_goes_before_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "project", "jobs_max = 1\nthreads_max = 2\n")
    monkeypatch.setenv("ANABRANCH_JOBS_MAX", "3")
    loaded = load()
    assert (loaded.settings.jobs_max, loaded.settings.threads_max) == (3, 2)
    assert loaded.origins["jobs_max"] == Origin("environment", "ANABRANCH_JOBS_MAX")


@pytest.mark.parametrize(
    ("given", "lost"),
    [
        ("store", "server"),
        ("token_file", "token"),
        ("token", "token_file"),
        ("secret_key_file", "secret_key"),
        ("secret_key", "secret_key_file"),
        ("chain_signer_key_env", "chain_signer_key_file"),
        ("chain_signer_key_file", "chain_signer_key_env"),
    ],
)
def test_what_the_environment_gives_sets_aside_what_the_file_means_instead(
    home: Path, monkeypatch: pytest.MonkeyPatch, given: str, lost: str
) -> None:
    write(home / "project", f'{lost} = "of the file"', 0o600)
    assert getattr(load().settings, lost) != ""
    monkeypatch.setenv(f"ANABRANCH_{given.upper()}", "of the environment")
    loaded = load()
    assert getattr(loaded.settings, given) == "of the environment"
    assert getattr(loaded.settings, lost) == ""
    assert lost not in loaded.origins


def test_a_program_may_ask_for_the_same(home: Path) -> None:
    write(home / "project", "jobs_max = 12")
    assert anabranch.load_settings().jobs_max == 12


# -- what is wrong with it -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jobs_mx = 1", "1: there is no setting 'jobs_mx'; did you mean jobs_max?"),
        ("\nJOBS_MAX = 1", "2: there is no setting 'JOBS_MAX'; did you mean jobs_max?"),
        ("[hues]\na = 1", "1: there is no setting 'hues'; `anabranch settings` lists them all"),
        ("[settings]\njobs_max = 1", "1: there is no setting 'settings'; write the settings at the"
         " top of the file, without [settings]"),
        ('jobs_max = "5"', "1: jobs_max must be a whole number without quotes, not text"),
        ("jobs_max = 1.5", "1: jobs_max must be a whole number without quotes, not a number"),
        ("jobs_max = 0", "1: jobs_max must be above zero, not '0'"),
        ("grace_seconds = -1", "1: grace_seconds must be zero or more, not '-1'"),
        ("grace_seconds = inf", "1: grace_seconds must be zero or more, not 'inf'"),
        ("grace_seconds = true", "1: grace_seconds must be a number without quotes, not true or"
         " false"),
        ("store = 5", "1: store must be text in quotes, not a number"),
        ("store = 2026-01-01", "1: store must be text in quotes, not a date"),
        ('no_inline = ["shell"]', "1: no_inline must be text in quotes, not a list"),
        ('synchronous = "OFF"', "1: synchronous must be FULL or NORMAL, not 'OFF'"),
        ("[keep_runs]\nfailed = 30", '2: keep_runs.failed must be an age in quotes, as "30d"'),
        ('[keep_runs]\nfailing = "30d"', "1: keep_runs: no run ends as 'failing'; did you"
         " mean failed?"),
        ("[pools]\na = 1", "2: the pool 'a' must be an address in quotes, as \"dask://HOST:8786\""),
        ('[pools]\n"a b" = "ray:auto"', "2: the pool 'a b' needs a name of letters, digits, `_`,"
         " `.` and `-`"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_with_its_line(home: Path, text: str, told: str) -> None:
    assert refused(text, home) == [told]


def test_all_problems_are_told_at_once(home: Path) -> None:
    told = refused("jobs_mx = 1\nthreads_max = 'x'\n# more\nstore = 1\n", home)
    assert [line.partition(":")[0] for line in told] == ["1", "2", "4"]


def test_a_text_that_is_no_toml_is_told_with_its_place(home: Path) -> None:
    (told,) = refused("jobs_max = \n", home)
    assert "(at line 1, column" in told


def test_a_file_that_is_no_file_or_no_text_is_refused(home: Path) -> None:
    (home / "project" / NAME).mkdir()
    with pytest.raises(InputError, match="is not a file but a directory"):
        load()
    (home / "project" / NAME).rmdir()
    (home / "project" / NAME).write_bytes(b"store = '\xff'")
    with pytest.raises(InputError, match="it is not UTF-8"):
        load()


# -- secrets and strangers -------------------------------------------------------------------


@posix
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('token = "abc-secret"', "1: token is a secret"),
        ('secret_key = "abc-secret"', "1: secret_key is a secret"),
        ('store = "postgresql://ann:abc-secret@db/x"', "1: store holds a password"),
        ('store = "postgresql://db/x?password=abc-secret"', "1: store holds a password"),
        ('[pools]\na = "dask://h:1?values=s3://k:abc-secret@b"', "1: pools holds a password"),
    ],
)
def test_a_secret_in_a_file_that_others_can_read_is_refused_and_not_told(
    home: Path, line: str, told: str, mode: int
) -> None:
    (found,) = refused(line, home, mode)
    assert found.startswith(told)
    assert "chmod 600" in found
    assert "abc-secret" not in found
    write(home / "project", line, 0o600)
    assert load().settings != Settings()


@posix
def test_an_address_without_a_password_may_be_read_by_everybody(home: Path) -> None:
    write(home / "project", 'store = "postgresql://ann@db/x"\nchain_url = "https://h:8545/a@b"')
    assert load().settings.store == "postgresql://ann@db/x"


@posix
@pytest.mark.parametrize(
    ("mode", "told"),
    [(0o646, "every user can change this file: `chmod o-w "),
     (0o664, "its group can change this file: `chmod g-w ")],
)  # fmt: skip
def test_a_file_that_others_can_change_is_refused(home: Path, mode: int, told: str) -> None:
    (problem,) = refused("jobs_max = 1", home, mode)
    assert told in problem


@posix
def test_a_group_may_change_a_file_that_is_named_and_nobody_else_may(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(home / "project", "jobs_max = 4", 0o664)
    monkeypatch.setenv(VARIABLE, str(file))
    assert load().settings.jobs_max == 4
    file.chmod(0o646)
    with pytest.raises(InputError, match="every user can change this file"):
        load()


@pytest.fixture(params=["root", "another user"])
def stranger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Somebody whose files are not those of the user who types; that one is root, or is not."""
    if os.geteuid() == 0:
        if request.param != "root":
            monkeypatch.setattr(os, "geteuid", lambda: 54_322)
        return 54_321
    if request.param == "root":
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 54_322)
    return os.getuid()


@posix
@pytest.mark.parametrize("through_a_link", [False, True])
def test_the_file_of_another_user_is_refused_unless_it_is_named(
    home: Path, stranger: int, through_a_link: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(home / "project", "jobs_max = 4")
    if through_a_link:
        file = file.rename(home / "kept.toml")  # of the user: what is foreign is the link
        (home / "project" / NAME).symlink_to(file)
    if os.getuid() != stranger:
        os.chown(home / "project" / NAME, stranger, -1, follow_symlinks=False)
    with pytest.raises(InputError, match="belongs to another user"):
        load()
    monkeypatch.setenv(VARIABLE, str(home / "project" / NAME))
    assert load().settings.jobs_max == 4


def test_nothing_secret_is_shown(home: Path) -> None:
    secret = "hush-hush"
    write(
        home / "project",
        f"""
        token = "{secret}"
        secret_key = "{secret}"
        store = "postgresql://ann:{secret}@db.example/runs?password={secret}"
        otel_endpoint = "https://{secret}@otel.example:4318/{secret}"
        chain_url = "https://node.example/{secret}"
        chain_endpoints = "a=https://x.example/{secret} b=https://y.example?key={secret}"
        [pools]
        heavy = "dask://h:1?values=s3://k:{secret}@b/x"
        gpu = "ray:auto"
        """,
        0o600,
    )
    shown = {each.name: each.value for each in shown_settings(load())}
    assert secret not in str(shown)
    assert shown["token"] == shown["secret_key"] == "(hidden)"
    assert shown["store"] == "postgresql://ann@db.example/runs"
    assert shown["chain_endpoints"] == "a=https://x.example/… b=https://y.example/…"
    assert shown["pools"] == "heavy=dask://h:1/…, gpu=ray:auto"
    private = {each.name for each in fields(Settings) if not each.repr}
    assert private == {
        name for name, value in shown.items() if value != getattr(load().settings, name)
    }
