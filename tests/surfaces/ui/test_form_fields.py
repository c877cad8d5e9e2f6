"""Forms as browsers send them, and as none does."""

from __future__ import annotations

import pytest

from anabranch.surfaces.ui.form_fields import Upload, pairs_in, parts_in

PART = 'Content-Disposition: form-data; name="a"'


def form(*parts: str, end: str = "--x--\r\n") -> bytes:
    return "".join([*(f"--x\r\n{part}\r\n" for part in parts), end]).encode()


def test_fields_files_and_names_with_quotes() -> None:
    file = 'content-disposition: form-data; name="file"; filename="a b;.yaml"'
    sent = form(
        f"{PART}\r\n\r\none\r\n\r\ntwo",
        f"{PART}\r\n\r\n",
        f"{file}\r\nContent-Type: text/yaml\r\n\r\na\n--x",
        'Content-Disposition: form-data; name="a%22b"\r\n\r\nü',
    )
    found = parts_in(sent, "x", 4)
    assert found.getall("a") == ["one\r\n\r\ntwo", ""]
    assert found["file"] == Upload("a b;.yaml", b"a\n--x")
    assert found['a"b'] == "ü"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"nothing",
        form(end=""),
        form(f"{PART}\r\n\r\n1", end=""),
        form(PART),
        form(*[f"{PART}\r\n\r\n1"] * 5),
        form(f"{PART}\r\nX-A: {'a' * 9000}\r\n\r\n1"),
        form(f"{PART}\r\nContent-Transfer-Encoding: base64\r\n\r\nMQ=="),
        form(f"{PART}\r\nContent-Type: multipart/mixed; boundary=y\r\n\r\n1"),
        form('Content-Disposition: attachment; name="a"\r\n\r\n1'),
        form(f"{PART}\r\n\r\n1").replace(b"1", b"\xff"),
        b"before" + form(f"{PART}\r\n\r\n1"),
    ],
)
def test_what_no_browser_sends_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of any kind: the answer is the same
        parts_in(sent, "x", 4)


def test_a_form_without_files() -> None:
    assert pairs_in(b"a=1&b=%C3%BC+x&a=", 3).getall("a") == ["1", ""]
    with pytest.raises(ValueError):  # noqa: PT011
        pairs_in(b"a=1&b=2", 1)
