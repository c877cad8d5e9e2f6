"""Whatever form of the table a secret is written in, it is found; other text stays as it is."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest

from anabranch.work.secrets import forms
from anabranch.work.secrets.forms import INSIDE
from anabranch.work.secrets.redaction import STARS, Redactor
from costs import calls

from .written_secrets import FORMS, written_in_every_form

SECRETS = (
    "hunter2hunter2",
    "hunter-two_pass.x9",
    "pa!ss@word=1+1#x",
    'Tr0ub4dor&3 <"it\'s">',
    "pässwörd-Straße-ß",
    "!!??##$$%%&&",
    "12345678",
    "秘密の言葉です、はい",
    "tab\tand\\back/slash+plus=",
    "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n",
    "x" * 300 + "-unlike-" + "y" * 300,
)


def scope(*secrets: str) -> Redactor:
    made = Redactor.of_job()
    for secret in secrets:
        made.learn(secret)
    return made


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
def test_a_secret_is_found_in_every_form(form: object, secret: str) -> None:
    clean = scope(secret)
    for written in written_in_every_form(secret)[form.name]:  # type: ignore[attr-defined]
        for text in (written, f"before {written} after"):
            shown = clean.text(text)
            assert STARS in shown, (text, shown)
            left = shown.replace(STARS, "").replace("before", "").replace("after", "")
            if form.name not in ("base64", "base64 in lines", "one line of several"):  # type: ignore[attr-defined]
                assert len(left) <= 60, (text, shown)
        assert STARS in str(clean.clean({"a": [{"b": written}]})), written


def test_the_table_of_the_docs_is_the_one_that_is_tested() -> None:
    rows = re.findall(r"^\| (?!form \|)([a-z][^|]*?) \|", str(forms.__doc__), re.M)
    assert rows == [form.name for form in FORMS]
    page = Path("docs/playbook/keychain.md").read_text()
    assert all(f"| {form.name} |" in page for form in FORMS)


def test_nothing_of_a_secret_in_base64_stays_but_what_its_neighbours_share() -> None:
    import base64

    secret = "hunter2-hunter3-hunter4"
    for before in range(6):
        written = base64.b64encode(b"u" * before + secret.encode() + b"vvvvv").decode()
        shown = scope(secret).text(written)
        again = shown.replace(STARS, "")
        assert len(again) <= len(written) - len(secret) * 8 // 6 + 3, (written, shown)


@pytest.mark.parametrize("short", ["test", "secret7"])
def test_a_short_secret_is_found_as_a_whole_value_only(short: str) -> None:
    clean = scope(short)
    value = {"a": short, "b": f"the {short}s", short: 1, "list": [short, f"{short}.", 7]}
    assert clean.clean(value) == {
        "a": "***",
        "b": f"the {short}s",
        short: 1,
        "list": ["***", f"{short}.", 7],
    }
    assert clean.cleaned == 2


def test_keys_are_not_renamed_and_a_mapping_with_a_secret_for_a_key_goes_as_a_whole() -> None:
    secret = "hunter2hunter2"
    assert scope(secret).clean({"kept": {f"x-{secret}": 1, "y": 2}, "z": 3}) == {
        "kept": STARS,
        "z": 3,
    }


def test_a_cut_text_keeps_no_part_of_a_secret() -> None:
    secret = "hunter2hunter2-and-more"
    clean = scope(secret)
    text = "a" * 50 + secret + "b" * 50
    for at in range(len(text) + 1):
        split = clean.split_at(text, at)
        assert (split == (50, 50 + len(secret))) == (50 < at < 50 + len(secret))


@pytest.mark.soak
def test_a_secret_of_very_many_lines_is_found_in_linear_time_without_a_huge_pattern() -> None:
    lines = [f"line {number:06} of the secret {number * 7919 % 10007}" for number in range(2000)]
    clean = scope("\n".join(lines))
    assert clean.text(f"so: {lines[1234]}!") == "so: ***!"


#: What a secret is made of where it is hard to find, and what stands before and behind it.
PIECES = (*"abf09%&#;\\'\"+ \n!-_x", "%4", "%25", "&#4", "&amp;", "\\n", "\\u00", "ä", "€", "😀")
AROUND = ("", " ", "x", "'", '"', "%", "%4", "&#", "\\", "\\x", "\\u00", "&", "C:\\", "\n")
LANGUAGES = (
    json.dumps,
    lambda text: json.dumps(json.dumps(text)),
    lambda text: quote(text, safe=""),
    lambda text: "".join(f"&#{ord(each)};" if not each.isalnum() else each for each in text),
    shlex.quote,
    repr,
)


def test_a_secret_is_found_in_whatever_its_neighbours_are_escaped_with() -> None:
    missed = []
    for seed in range(6_000):
        dice = Random(seed)
        secret = "q".join(dice.choices(PIECES, k=dice.randint(5, 9)))
        text = f"{dice.choice(AROUND)}{secret}{dice.choice(AROUND)}"
        written = dice.choice(LANGUAGES)(text)
        if STARS not in scope(secret).text(written):
            missed.append((seed, secret, text, written))
    assert not missed, (len(missed), missed[:5])


HARD = (
    ("\\" * 8 + "!", "\\"),
    ('"' * 8 + "!", '\\"'),
    ("'" * 8 + "!", "'\\''"),
    ("!!##!!##", "%21%2521"),
    ("&#&#&#&#", "&amp;#&#38;"),
    ("\\a" * 8 + "!", "a\\a"),
    ("a-" * 8 + "!", "\\u0061%2d"),
    ("😀😀😀😀😀😀😀😀", "\\ud83d\\\\ude00"),
)


@pytest.mark.parametrize(("secret", "piece"), HARD, ids=range(len(HARD)))
def test_the_work_grows_as_the_text_does(secret: str, piece: str) -> None:
    """A pattern of the spellings of each letter took four times as long for two backslashes more:
    this would not end."""
    clean = scope(secret)

    def taken(times: int) -> int:
        with calls() as found:
            clean.clean({"text": piece * times})
        return found.total()

    taken(1)
    assert taken(4_000) <= 2 * taken(2_000) + 50


def test_what_is_made_of_a_long_secret_grows_as_the_secret_does() -> None:
    """A pattern of 4,000 letters that may be escaped took half a minute to compile."""

    def taken(length: int) -> int:
        with calls() as found:
            secret = "".join(Random(length).choices("!$%&/()=?+*~#'<>|@", k=length))
            assert scope(secret).clean(secret) == STARS
        return found.total()

    taken(10)
    assert taken(8_000) <= 3 * taken(4_000)


def test_text_that_only_resembles_a_secret_stays() -> None:
    clean = scope("hunter2hunter2")
    for text in ("hunter2", "hunter3hunter2", "the hunter", "aHVudGVy", "\\" * 10_000):
        assert clean.clean({"text": text}) == {"text": text}
    assert clean.clean(value := {"n": 14, "x": [None, True, 2.5]}) is value
    assert INSIDE == 8
