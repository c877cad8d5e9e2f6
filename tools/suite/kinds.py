"""What kind of test a test is: by the folder or the file it stands in, the longest that fits."""

from __future__ import annotations

#: In the order in which they run: what depends on no machine, then what waits the longest; short
#: parts come last, so that no core is idle at the end.
KINDS = ("pure", "clusters", "store", "docs", "browser", "processes")

_PLACES = {
    "": "processes",
    "corpus": "pure",
    "dialects": "pure",
    "expressions": "pure",
    "kernel": "pure",
    "net": "pure",
    "testing": "pure",
    "testing/market": "processes",
    "testing/test_the_page_about_testing.py": "docs",
    "xrc": "pure",
    "pools": "clusters",
    "acceptance/test_clusters_page.py": "clusters",
    "surfaces/ui": "browser",
    "surfaces/ui/views": "processes",
    "store": "store",
    "runtime/cluster": "store",
    "acceptance/test_docs_commands.py": "docs",
    "acceptance/test_market_page.py": "docs",
    "acceptance/test_node_page.py": "docs",
    "acceptance/test_postgres_page.py": "docs",
    "acceptance/test_schedules_page.py": "docs",
    "acceptance/test_tutorial.py": "docs",
    "modules/test_documentation.py": "docs",
    "test_docs.py": "docs",
    "test_glossary.py": "docs",
    "test_patterns.py": "pure",
    "test_readme.py": "docs",
    "test_site.py": "docs",
}


def kind_of(test: str) -> str:
    """Of a file or of one test in it, by its path from the root of the repository."""
    path, _, name = test.removeprefix("tests/").partition("::")
    if path.startswith("store/") and "[memory" in name:
        return "pure"
    parts = path.split("/")
    places = ("/".join(parts[:length]) for length in range(len(parts), -1, -1))
    return next(_PLACES[place] for place in places if place in _PLACES)


def is_pure(test: str) -> bool:
    """Whether it can only fail by a mistake of ours, on whatever machine."""
    return kind_of(test) == "pure"
