"""A browser without scripts, layout or pictures: it reads pages, follows links and sends forms.

What the server renders needs no Chromium: a page here takes a fortieth of what one takes there. It
has the names of Playwright that the tests use, so that a test says by its fixture alone which one
it needs. Words that nobody sees (`hidden`, closed details) are not read here either.
"""

from __future__ import annotations

import http.cookiejar
import json
import re
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPCookieProcessor, HTTPRedirectHandler, Request, build_opener
from uuid import uuid4

from hangs import HANG_SECONDS

from .support import eventually

VOID = {*("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source")}
VOID |= {"track", "wbr"}
#: A start of one of these ends those of them that are open, up to the parent that is named.
IMPLIED = {
    "li": ("ul", "ol"),
    "dt": ("dl",),
    "dd": ("dl",),
    "tr": ("table",),
    "td": ("tr",),
    "th": ("tr",),
    "option": ("select", "datalist"),
}
UNREAD = {"script", "style", "template", "head", "datalist"}
BLOCKS = {
    *("address", "article", "aside", "body", "dd", "details", "dialog", "div", "dl", "dt", "form"),
    *("fieldset", "figure", "footer", "h1", "h2", "h3", "h4", "header", "hr", "legend", "li"),
    *("main", "nav", "ol", "option", "p", "pre", "section", "summary", "table", "tbody", "tfoot"),
    *("thead", "tr", "ul"),
}
ROLES = {
    "alert": "[role=alert]",
    "article": "article",
    "button": "button, input[type=submit], [role=button]",
    "checkbox": "input[type=checkbox]",
    "heading": "h1, h2, h3, h4, h5, h6",
    "link": "a[href]",
    "region": "section[aria-label], section[aria-labelledby]",
    "row": "tr",
    "textbox": "textarea, input:not([type]), input[type=text], input[type=search]",
}
CONTROLS = "input, select, textarea, button"
LABELLED = {"input", "select", "textarea", "button"}


# -- the tree --------------------------------------------------------------------------------


class Element:
    def __init__(self, tag: str, attrs: dict[str, str], parent: Element | None) -> None:
        self.tag, self.attrs, self.parent = tag, attrs, parent
        self.children: list[Element | str] = []
        self.typed: str | None = None
        """What was typed into it, in place of what it came with."""

    @property
    def elements(self) -> list[Element]:
        return [one for one in self.children if isinstance(one, Element)]

    def walk(self) -> Iterator[Element]:
        """Everything inside it, in the order of the text."""
        for one in self.elements:
            yield one
            yield from one.walk()

    def above(self) -> Iterator[Element]:
        at = self.parent
        while at is not None:
            yield at
            at = at.parent

    @property
    def text(self) -> str:
        """All of it, also what nobody sees."""
        return "".join(one if isinstance(one, str) else one.text for one in self.children)

    @property
    def is_seen(self) -> bool:
        line = [self, *self.above()]
        if any(one.tag in UNREAD or "hidden" in one.attrs or _is_shut(one) for one in line):
            return False
        return not any(_hides(parent, child) for child, parent in pairwise(line))


def _is_shut(one: Element) -> bool:
    return one.tag == "dialog" and "open" not in one.attrs


def _hides(parent: Element, child: Element) -> bool:
    return parent.tag == "details" and "open" not in parent.attrs and child.tag != "summary"


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self._at = Element("#document", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._close_implied(tag)
        made = Element(tag, {name: value or "" for name, value in attrs}, self._at)
        self._at.children.append(made)
        if tag not in VOID:
            self._at = made

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def _close_implied(self, tag: str) -> None:
        same = (
            {"td", "th"} if tag in ("td", "th") else {"dt", "dd"} if tag in ("dt", "dd") else {tag}
        )
        for one in [self._at, *self._at.above()]:
            if tag not in IMPLIED or one.tag in IMPLIED[tag]:
                return
            if one.tag in same:
                self._at = one.parent or self.root
                return

    def handle_endtag(self, tag: str) -> None:
        for one in [self._at, *self._at.above()]:
            if one.tag == tag:
                self._at = one.parent or self.root
                return

    def handle_data(self, data: str) -> None:
        self._at.children.append(data)


def parse(markup: str) -> Element:
    builder = _Builder()
    builder.feed(markup)
    builder.close()
    return builder.root


def read(one: Element) -> str:
    """What a person reads of it: blocks are lines, cells are apart by tabs."""
    if not one.is_seen:
        return one.text
    found = "".join(_read(one, in_pre=one.tag == "pre"))
    lines = [line.strip(" ") for line in re.sub(r" ?\t ?", "\t", found).split("\n")]
    return re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip()


def _read(one: Element, in_pre: bool) -> Iterator[str]:
    for child in one.children:
        if isinstance(child, str):
            yield child if in_pre else re.sub(r"\s+", " ", child)
        elif child.tag == "br":
            yield "\n"
        elif not (
            child.tag in UNREAD or "hidden" in child.attrs or _is_shut(child) or _hides(one, child)
        ):
            inner = _read(child, in_pre or child.tag == "pre")
            around = "\n" if child.tag in BLOCKS else "\t" if child.tag in ("td", "th") else ""
            yield around
            yield from inner
            yield around


def squeeze(text: str) -> str:
    return " ".join(text.split())


# -- selectors -------------------------------------------------------------------------------

Test = Callable[[Element], bool]
_PART = re.compile(
    r"""(?P<tag>^[a-zA-Z*][\w-]*|^\*)|\#(?P<id>[\w-]+)|\.(?P<class>[\w-]+)
    |\[(?P<attr>[\w-]+)(?:(?P<op>[*^$]?=)(?P<q>["']?)(?P<value>.*?)(?P=q))?\s*(?:i\s*)?\]
    |:nth-child\((?P<nth>\d+)\)|:(?P<first>first-child)|:not\((?P<not>[^()]*)\)|:(?P<state>checked|disabled)""",
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "=": lambda have, want: have == want,
    "*=": lambda have, want: want in have,
    "^=": lambda have, want: have.startswith(want),
    "$=": lambda have, want: have.endswith(want),
}


def select(root: Element, selector: str) -> list[Element]:
    chains = [_chain(one) for one in _split(selector, ",")]
    return [one for one in root.walk() if any(_fits(one, chain, root) for chain in chains)]


def _split(text: str, mark: str) -> list[str]:
    """At the marks that stand in no bracket and no quote."""
    parts, depth, quote, now = list[str](), 0, "", ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        depth += (letter in "([") - (letter in ")]") if not quote else 0
        if letter == mark and not depth and not quote:
            parts.append(now)
            now = ""
        else:
            now += letter
    return [one.strip() for one in [*parts, now] if one.strip()]


def _chain(selector: str) -> list[tuple[str, list[Test]]]:
    """Of each part how it hangs at the one before it, and its tests."""
    chain, joint = list[tuple[str, list[Test]]](), " "
    for word in _split(selector, " "):
        if word == ">":
            joint = ">"
        else:
            chain.append((joint, _tests(word)))
            joint = " "
    return chain


def _tests(word: str) -> list[Test]:
    tests, at = list[Test](), 0
    while at < len(word):
        found = _PART.match(word[at:])
        assert found is not None, f"a selector that is not known here: {word}"
        tests.append(_test(found.groupdict()))
        at += found.end()
    return tests


def _test(part: dict[str, str | None]) -> Test:
    tag, name, value = part["tag"], part["attr"], part["value"] or ""
    if tag is not None:
        return lambda one: tag in ("*", one.tag)
    if part["id"] is not None:
        return lambda one: one.attrs.get("id") == part["id"]
    if part["class"] is not None:
        return lambda one: part["class"] in one.attrs.get("class", "").split()
    if part["nth"] is not None:
        return lambda one: (
            one.parent is not None and one.parent.elements[int(part["nth"] or 0) - 1 :][:1] == [one]
        )
    if part["first"] is not None:
        return lambda one: one.parent is not None and one.parent.elements[:1] == [one]
    if part["not"] is not None:
        inner = _tests(part["not"])
        return lambda one: not all(test(one) for test in inner)
    if part["state"] is not None:
        return lambda one: str(part["state"]) in one.attrs
    assert name is not None
    if part["op"] is None:
        return lambda one: name in one.attrs
    compare = _COMPARE[part["op"]]
    return lambda one: name in one.attrs and compare(one.attrs[name], value)


def _fits(one: Element, chain: list[tuple[str, list[Test]]], root: Element) -> bool:
    joint, tests = chain[-1]
    if not all(test(one) for test in tests):
        return False
    if len(chain) == 1:
        return joint == " " or one.parent is root
    near = [one.parent] if joint == ">" else list(one.above())
    return any(above is not None and _fits(above, chain[:-1], root) for above in near)


# -- names -----------------------------------------------------------------------------------


def _by_id(root: Element, name: str) -> Element | None:
    return next((one for one in root.walk() if one.attrs.get("id") == name), None)


def _labels(root: Element, one: Element) -> list[str]:
    """What a screen reader may call it."""
    names = [one.attrs["aria-label"]] if one.attrs.get("aria-label") else []
    for word in one.attrs.get("aria-labelledby", "").split():
        found = _by_id(root, word)
        names += [found.text] if found else []
    if one.tag in LABELLED:
        labels = [up for up in one.above() if up.tag == "label"]
        if "id" in one.attrs:
            labels += [to for to in select(root, "label") if to.attrs.get("for") == one.attrs["id"]]
        names += [label.text for label in labels]
    return [squeeze(name) for name in names]


def _name(root: Element, one: Element) -> str:
    found = _labels(root, one)
    return (
        found[0]
        if found
        else squeeze(one.attrs.get("value", "") if one.tag == "input" else one.text)
    )


def _says(have: str, want: str | re.Pattern[str] | None, exact: bool = False) -> bool:
    if want is None:
        return True
    if isinstance(want, re.Pattern):
        return bool(want.search(have))
    return have == want if exact else squeeze(want).lower() in squeeze(have).lower()


# -- what tests use --------------------------------------------------------------------------

Find = Callable[[], list[Element]]


class Places:
    """Whatever can be looked for on a page, or in a part of it."""

    page: PlainPage

    def _roots(self) -> list[Element]:
        raise NotImplementedError

    def _inside(self, find: Callable[[Element], Iterable[Element]]) -> Locator:
        def found() -> list[Element]:
            seen: dict[int, Element] = {}
            for root in self._roots():
                seen |= {id(one): one for one in find(root)}
            return list(seen.values())

        return Locator(self.page, found)

    def locator(self, selector: str, **more: Any) -> Locator:
        return self._inside(lambda root: select(root, selector)).filter(**more)

    def get_by_role(
        self, role: str, *, name: Any = None, exact: bool = False, level: int = 0
    ) -> Locator:
        def fits(one: Element) -> bool:
            called = _name(self.page.root, one)
            return (
                one.is_seen
                and _says(called, name, exact)
                and level in (0, int(one.tag[1:] or 0) if level else 0)
            )

        return self._inside(lambda root: filter(fits, select(root, ROLES[role])))

    def get_by_label(self, text: str, *, exact: bool = False) -> Locator:
        def fits(one: Element) -> bool:
            names = _labels(self.page.root, one)
            return any(_says(name, text, exact) for name in names)

        return self._inside(lambda root: filter(fits, root.walk()))

    def get_by_text(self, text: str, *, exact: bool = False) -> Locator:
        """The smallest ones that say it."""

        def says(one: Element) -> bool:
            return one.is_seen and _says(squeeze(one.text), text, exact)

        def found(root: Element) -> list[Element]:
            every = [one for one in (root, *root.walk()) if says(one)]
            return [one for one in every if not any(says(inner) for inner in one.elements)]

        return self._inside(found)


class Locator(Places):
    def __init__(self, page: PlainPage, find: Find) -> None:
        self.page, self._find = page, find

    def _roots(self) -> list[Element]:
        return self._find()

    def filter(self, *, has_text: Any = None, has: Locator | None = None) -> Locator:
        def fits(one: Element) -> bool:
            inner = has is None or any(id(o) in {id(w) for w in one.walk()} for o in has._find())
            return inner and _says(squeeze(one.text), has_text)

        return Locator(self.page, lambda: [one for one in self._find() if fits(one)])

    def all(self) -> list[Locator]:
        return [Locator(self.page, lambda one=one: [one]) for one in self._find()]  # type: ignore[misc]

    def nth(self, index: int) -> Locator:
        stop = None if index == -1 else index + 1
        return Locator(self.page, lambda: self._find()[index:stop])

    @property
    def first(self) -> Locator:
        return self.nth(0)

    @property
    def last(self) -> Locator:
        return self.nth(-1)

    def one(self) -> Element:
        """The only one; it is asked for again until it is there."""
        self.wait_for()
        found = self._find()
        assert len(found) == 1, [squeeze(each.text)[:80] for each in found]
        return found[0]

    def count(self) -> int:
        return len(self._find())

    def wait_for(self) -> None:
        def there() -> bool:
            if not self._find():
                self.page.reload()
            return bool(self._find())

        assert self._find() or eventually(there), squeeze(self.page.root.text)[:2000]

    def inner_text(self) -> str:
        return read(self.one())

    def text_content(self) -> str:
        return self.one().text

    def all_inner_texts(self) -> list[str]:
        return [read(one) for one in self._find()]

    def get_attribute(self, name: str) -> Any:
        return self.one().attrs.get(name)

    def is_visible(self) -> bool:
        return any(one.is_seen for one in self._find())

    def is_hidden(self) -> bool:
        return not self.is_visible()

    def input_value(self) -> str:
        return _value(self.one())

    def is_checked(self) -> bool:
        return "checked" in self.one().attrs

    def fill(self, text: str) -> None:
        one = self.one()
        assert one.tag in ("input", "textarea"), one.tag
        one.typed = text

    def check(self) -> None:
        self.one().attrs["checked"] = ""

    def uncheck(self) -> None:
        self.one().attrs.pop("checked", None)

    def select_option(self, value: str) -> None:
        one = self.one()
        values = [_option(option) for option in one.walk() if option.tag == "option"]
        assert value in values, values
        one.typed = value

    def click(self) -> None:
        one = self.one()
        if one.tag == "a":
            self.page.goto(one.attrs["href"])
        elif one.tag == "summary" or (one.parent is not None and one.parent.tag == "summary"):
            details = next(up for up in one.above() if up.tag == "details")
            details.attrs.pop("open") if "open" in details.attrs else details.attrs.update(open="")
        elif one.attrs.get("type") == "checkbox":
            one.attrs.pop("checked") if "checked" in one.attrs else one.attrs.update(checked="")
        else:
            assert one.tag == "button" or one.attrs.get("type") == "submit", one.tag
            self.page.submit(one)


def _option(one: Element) -> str:
    return one.attrs.get("value", squeeze(one.text))


def _value(one: Element) -> str:
    if one.typed is not None:
        return one.typed
    if one.tag == "select":
        options = [option for option in one.walk() if option.tag == "option"]
        chosen = [option for option in options if "selected" in option.attrs] or options
        return _option(chosen[0]) if chosen else ""
    if one.tag == "textarea":
        return one.text.removeprefix("\n")
    return one.attrs.get("value", "on" if one.attrs.get("type") in ("checkbox", "radio") else "")


class Answer:
    """Of a request that was sent beside the page, or of the page itself."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self._body = status, body
        self.headers = {name.lower(): value for name, value in headers.items()}

    @property
    def ok(self) -> bool:
        return self.status < 400

    def text(self) -> str:
        return self._body.decode()

    def json(self) -> Any:
        return json.loads(self._body)


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_given: Any, **_more: Any) -> None:
        return None


class Requests:
    """Requests with the cookies of a page."""

    def __init__(self, base: str) -> None:
        self._base = base
        self.jar = http.cookiejar.CookieJar()
        self._follows = build_opener(HTTPCookieProcessor(self.jar))
        self._stays = build_opener(HTTPCookieProcessor(self.jar), _Stay())

    def get(self, way: str) -> Answer:
        return self.send(way)[0]

    def post(
        self,
        way: str,
        *,
        data: Any = None,
        form: dict[str, str] | None = None,
        max_redirects: int = 20,
    ) -> Answer:
        """`data` goes as JSON, a `form` as a form."""
        if form is not None:
            body, kind = urlencode(form).encode(), "application/x-www-form-urlencoded"
        else:
            body, kind = json.dumps(data).encode(), "application/json"
        return self.send(way, body, kind, follow=max_redirects > 0)[0]

    def send(
        self, way: str, body: bytes | None = None, kind: str = "", *, follow: bool = True
    ) -> tuple[Answer, str]:
        """The answer, and the address where it was found."""
        request = Request(urljoin(self._base, way).replace(" ", "%20"), body)
        request.add_header("Accept", "text/html,*/*;q=0.8")
        if body is not None:
            request.add_header("Content-Type", kind)
            request.add_header("Origin", self._base)
            request.add_header("Sec-Fetch-Site", "same-origin")
        opener = self._follows if follow else self._stays
        try:
            found = opener.open(request, timeout=HANG_SECONDS)
        except HTTPError as error:
            found = error
        with found:
            return Answer(found.status or 0, found.headers, found.read()), found.url or ""


class PlainPage(Places):
    def __init__(self, base: str) -> None:
        self._base = base
        self.page = self
        self.request = Requests(base)
        self.root = parse("")
        self.url = base
        self._markup = ""

    def _roots(self) -> list[Element]:
        return [self.root]

    def goto(self, way: str) -> Answer:
        way = urljoin(self.url if self.url != self._base else f"{self._base}/", way)
        return self._open(way, None, "")

    def reload(self) -> None:
        self._open(self.url, None, "")

    def _open(self, way: str, body: bytes | None, kind: str) -> Answer:
        fragment = urlsplit(way).fragment
        answer, self.url = self.request.send(way.partition("#")[0], body, kind)
        self.url = self.url.partition("#")[0] + (f"#{fragment}" if fragment else "")
        self._markup = answer.text()
        html = "html" in answer.headers.get("content-type", "")
        self.root = parse(self._markup if html else f"<pre>{_escaped(self._markup)}</pre>")
        return answer

    def content(self) -> str:
        return self._markup

    def rows(self, selector: str, attribute: str) -> list[str]:
        """An attribute of each of these."""
        return [one.attrs.get(attribute, "") for one in select(self.root, selector)]

    def wait_for_url(self, pattern: str) -> None:
        wanted = re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
        assert re.fullmatch(wanted, self.url), (self.url, pattern)

    # -- forms ---------------------------------------------------------------------------

    def submit(self, button: Element) -> None:
        """As a browser does: not while something is missing that is needed."""
        assert "disabled" not in button.attrs
        form = self._form(button)
        fields = [one for one in select(self.root, CONTROLS) if self._form(one) is form]
        checked = "novalidate" not in form.attrs and "formnovalidate" not in button.attrs
        if checked and any("required" in one.attrs and not _value(one) for one in fields):
            return
        pairs = [pair for one in fields for pair in _sent(one, button)]
        way = button.attrs.get("formaction", form.attrs.get("action", self.url))
        way = urljoin(self.url, way)
        if button.attrs.get("formmethod", form.attrs.get("method", "get")).lower() == "get":
            self._open(f"{way.partition('?')[0]}?{urlencode(pairs)}", None, "")
        elif form.attrs.get("enctype") == "multipart/form-data":
            self._open(way, *_multipart(pairs))
        else:
            self._open(way, urlencode(pairs).encode(), "application/x-www-form-urlencoded")

    def _form(self, one: Element) -> Element:
        if "form" in one.attrs:
            found = _by_id(self.root, one.attrs["form"])
        else:
            found = next((up for up in one.above() if up.tag == "form"), None)
        return found or self.root


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _sent(one: Element, button: Element) -> list[tuple[str, str]]:
    kind = one.attrs.get("type", "")
    if "disabled" in one.attrs or not one.attrs.get("name") or kind in ("file", "button", "reset"):
        return []
    if (one.tag == "button" or kind in ("submit", "image")) and one is not button:
        return []
    if kind in ("checkbox", "radio") and "checked" not in one.attrs:
        return []
    return [(one.attrs["name"], _value(one))]


def _multipart(pairs: list[tuple[str, str]]) -> tuple[bytes, str]:
    line = uuid4().hex
    parts = [
        f'--{line}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in pairs
    ]
    return "".join([*parts, f"--{line}--\r\n"]).encode(), f"multipart/form-data; boundary={line}"
