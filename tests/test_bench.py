"""What the benchmarks say of themselves: neighbours apart from us, bounded, quoted as measured."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import __main__ as command
from bench import cases, readme, report, results, rows, runner
from bench.cases import CASES
from bench.peers import catalog, environments, measured, table
from bench.peers.catalog import OURS, PEERS, Peer
from bench.peers.measured import Measured
from bench.peers.work import measuring
from bench.rows import Row

from hangs import HANG_SECONDS

SECONDS = HANG_SECONDS
SCRIPTS = sorted(catalog.WORK.glob("with_*.py"))
#: The packages that a script may import beside the standard library.
MAY_IMPORT = {
    "anabranch": {"anabranch"},
    "celery": {"celery"},
    "dask": {"dask", "distributed"},
    "dbos": {"dbos"},
    "prefect": {"prefect"},
    "ray": {"ray"},
}


# -- neighbours are apart from us --------------------------------------------------------------


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_imports_its_neighbour_and_nothing_of_others(path: Path) -> None:
    outside = set(imported(path)) - sys.stdlib_module_names
    assert outside == {"measuring"} | MAY_IMPORT[path.stem.removeprefix("with_")]


def test_what_the_scripts_share_needs_the_standard_library_only() -> None:
    assert set(imported(catalog.WORK / "measuring.py")) <= sys.stdlib_module_names


def test_our_process_imports_no_neighbour() -> None:
    code = (
        "import sys, bench.__main__; "
        "print([name for name in ('dbos', 'celery', 'prefect', 'redis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_neighbour_has_a_script_an_exact_version_and_words_on_what_survives() -> None:
    for peer in (*OURS, *PEERS):
        assert peer.path in SCRIPTS
        assert peer.survives
        assert all("==" in requirement for requirement in peer.requirements)
        assert peer.beside in {ours.variant for ours in OURS}
    assert {peer.script for peer in PEERS} == MAY_IMPORT.keys() - {"anabranch"}


# -- bounded --------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "expected"), [(1_000, 1_000), (99, 10), (100, 100), (0, 10)])
def test_the_largest_number_that_is_expected_in_time_is_measured(
    monkeypatch: pytest.MonkeyPatch, limit: float, expected: int
) -> None:
    now = [0.0]
    done: list[int] = []
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def work(number: int) -> None:  # a second for each
        done.append(number)
        now[0] += number

    found = measuring.bounded(work, (10, 100, 1_000), limit)
    assert (found["number"], found["wall"]) == (expected, expected)
    assert done == [10, *(number for number in (10, 100, 1_000) if number <= expected)]


def script(folder: Path, text: str, **fields: object) -> Peer:
    """A neighbour of our own making, whose script is this text."""
    (folder / "with_fake.py").write_text(text)
    chosen = {"requirements": (), "survives": "nothing", **fields}
    return Peer("fake", "fake", "plain", **chosen)  # type: ignore[arg-type]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(catalog, "WORK", tmp_path)
    return tmp_path


def test_a_figure_is_the_last_line_that_a_script_prints(work: Path) -> None:
    text = 'print(\'hello\'); print(\'{"number": 7, "wall": 2.0, "cpu": 0.5}\')'
    found = measured.measured(script(work, text), "items", work, SECONDS)
    assert (found.number, found.wall, found.cpu, found.reason) == (7, 2.0, 0.5, "")
    assert found.rate == 3.5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise SystemExit('no such thing')", "failed: no such thing"),
        ("pass", "failed: it printed no figures"),
        ("print('[]')", "failed: it printed no figures"),
        ("print('{\"wall\": 1}')", "failed: it printed no figures"),
    ],
)
def test_a_neighbour_that_fails_is_a_reason_and_no_failure(
    work: Path, text: str, reason: str
) -> None:
    found = measured.measured(script(work, text), "one", work, SECONDS)
    assert found.reason == reason
    (row,) = table.rows([found])
    assert (row.figure, row.ratio, row.met, row.probe) == (None, None, None, reason)


def test_a_neighbour_that_does_not_end_is_ended(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "SERVERS_SECONDS", 0.2)
    peer = script(work, "import time; time.sleep(3600)")
    found = measured.measured(peer, "one", work, 0.0)
    assert found.reason == "did not end within 0 s"


def test_a_neighbour_has_a_home_of_its_own_that_is_gone_afterwards(work: Path) -> None:
    text = (
        "import pathlib, sys\n"
        "home = pathlib.Path.home()\n"
        "(home / 'token').write_text('left behind')\n"
        "sys.exit(f'{home.is_relative_to(sys.argv[3])} {home}')\n"
    )
    reason = measured.measured(script(work, text), "one", work, SECONDS).reason
    inside, _, home = reason.removeprefix("failed: ").partition(" ")
    assert inside == "True"
    assert Path(home) != Path.home()
    assert not Path(home).exists()


def test_a_neighbour_that_lacks_something_is_not_begun(work: Path) -> None:
    peer = script(work, "raise SystemExit('begun')", lacks=lambda: "there is no server")
    assert measured.measured(peer, "one", work, SECONDS).reason == "there is no server"


def test_a_neighbour_that_cannot_be_installed_is_a_reason(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "HERE", work)

    def fails(command: list[str]) -> None:
        raise environments.NotInstalled("cannot be installed: no such version")

    monkeypatch.setattr(environments, "_run", fails)
    peer = script(work, "", requirements=("nothing==0.0",))
    assert "no such version" in measured.measured(peer, "one", work, SECONDS).reason


def test_an_environment_is_made_once_and_anew_for_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "HERE", tmp_path)
    made: list[str] = []

    def make(command: list[str]) -> None:
        made.append(command[-1])
        python = tmp_path / ".venv-fake" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()

    monkeypatch.setattr(environments, "_run", make)
    for version in ("fake==1", "fake==1", "fake==2"):
        environments.python_of("fake", (version,))
    assert [word for word in made if word.startswith("fake")] == ["fake==1", "fake==2"]


def test_checkouts_can_share_environments_in_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / ".venv-fake" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    (tmp_path / ".venv-fake" / ".installed").write_text("fake==1")
    monkeypatch.setenv(environments.FOLDER, str(tmp_path))
    assert environments.python_of("fake", ("fake==1",)) == python


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_servers_that_a_script_leaves_behind_are_ended(work: Path) -> None:
    text = (
        "import subprocess, sys\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'],\n"
        "    start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        'print(\'{"number": %d, "wall": 1, "cpu": 1}\' % left.pid)\n'
    )
    pid = measured.measured(script(work, text), "items", work, SECONDS).number
    status, until = Path(f"/proc/{pid}/stat"), time.monotonic() + SECONDS
    state = "R"
    while state not in "ZX":  # those have ended, and nobody has asked for their exit code
        assert time.monotonic() < until, state  # the signal takes effect a moment after it was sent
        time.sleep(0.01)
        try:
            state = status.read_text().rpartition(")")[2].split()[0]
        except OSError:
            return  # gone


@pytest.mark.soak
def test_ours_is_measured_through_the_same_script_as_the_neighbours(tmp_path: Path) -> None:
    found = measured.measured(OURS[0], "one", tmp_path, SECONDS)
    assert found.reason == ""
    assert 3 <= found.number <= 100
    assert found.wall > 0 < found.cpu


# -- the table ------------------------------------------------------------------------------


def of(peer: Peer, case: str, wall: float, number: int = 10) -> Measured:
    return Measured(peer, case, number, wall, wall)


@pytest.mark.parametrize("case", ["one", "many", "items"])
def test_a_ratio_says_how_many_times_as_fast_ours_is_on_the_same_kind_of_store(case: str) -> None:
    sqlite, postgres = OURS
    dbos, *_, dbos_postgres = (peer for peer in PEERS if peer.script == "dbos")
    found = [of(sqlite, case, 1.0), of(postgres, case, 2.0)]
    rows = table.rows([*found, of(dbos, case, 8.0), of(dbos_postgres, case, 8.0)])
    assert [row.ratio for row in rows] == [None, None, 8.0, 4.0]


def test_a_rate_counts_steps_of_runs_and_items_by_what_was_really_done() -> None:
    many = table.row(of(OURS[0], "many", 2.0, 500), None)
    items = table.row(of(OURS[0], "items", 2.0, 500), None)
    assert (many.figure, many.unit, items.figure, items.unit) == (750, "steps/s", 250, "items/s")
    assert many.probe == "×500"


def test_without_ours_there_is_no_ratio() -> None:
    failed = Measured(OURS[0], "one", reason="failed: x")
    assert [row.ratio for row in table.rows([failed, of(PEERS[0], "one", 1.0)])] == [None, None]


def test_neighbours_can_be_chosen_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {peer.script for peer in table.chosen("dask, Ray")} == {"anabranch", "dask", "ray"}
    assert len(table.chosen("")) == len(OURS) + len(PEERS)
    works = [f"peers_{work}" for work in catalog.CASES]
    monkeypatch.setenv("PEERS", "0")
    assert not set(works) & set(command.chosen([]))
    assert command.chosen(["b1", "Peers"]) == ["b1", *works]
    monkeypatch.setenv("PEERS", "")
    assert command.chosen([]) == [*CASES]
    with pytest.raises(SystemExit, match="no case b99"):
        command.chosen(["b99"])
    monkeypatch.setenv("ANABRANCH_BENCH_PEERS", "druid")
    with pytest.raises(SystemExit, match="no peer druid"):
        command.chosen(["peers"])


def test_figures_have_the_digits_that_a_reader_can_use() -> None:
    shown = [rows.number(value) for value in (12_345.6, 123.4, 12.34, 1.234, 0.0)]
    assert shown == ["12,346", "123", "12.3", "1.23", "0.00"]
    row = Row("B1", 0.5, "ms", "a|b", 2.0, "≤ 3×", True, 1_500.0)
    assert rows.processor(row) == "1.50 ms"
    words = ["B1", "2.00×", "0.50", "ms", "1.50", "ms", "a|b", "≤", "3×", "met"]
    assert report.line(row).split() == words
    found = readme.cells(report.markdown([row], "a machine"))
    assert found["B1"] == ["2.00×", "0.50 ms", r"a\|b", "≤ 3×: met"]


def test_the_table_counts_the_aims_that_are_met() -> None:
    judged = [Row("B1", 1.0, "ms", "", None, "≤ 1 ms", met) for met in (True, False, None)]
    text = report.markdown(judged, "a machine")
    assert "a machine. Aims met: 1 of 2." in text
    assert "| ≤ 1 ms: **not met** |" in text


def test_a_product_is_a_line_with_a_cell_for_each_work_and_the_ratio_first() -> None:
    dask = next(peer for peer in PEERS if peer.name == "Dask, threads")
    found = [of(peer, case, wall) for peer, wall in ((OURS[0], 1.0), (dask, 4.0)) for case in MANY]
    failed = Measured(dask, "start", reason="did not end within 100 s")
    text = report.markdown([*table.rows([*found, failed]), *table.left_out()], "a machine")
    lines = readme.cells(text)
    assert lines[OURS[0].name] == [
        "–",
        "30.0 steps/s (×10)",
        *["10.0 items/s (×10)"] * 2,
        "–",
        EVER,
    ]
    assert lines[dask.name][1:5] == [
        "**4.00×** 7.50 steps/s (×10)",
        *["**4.00×** 2.50 items/s (×10)"] * 2,
        "–",
    ]
    title = catalog.CASES["start"]
    assert f"- not measured: {title}: {dask.name}: did not end within 100 s" in text
    assert "- not measured: Temporal: " in text


MANY = ("many", "items", "batches")
EVER = OURS[0].survives


def test_every_case_is_found_in_its_module() -> None:
    assert [f"peers_{work}" for work in catalog.CASES] == cases.PEERS
    assert all(callable(cases.case(name)) for name in CASES)


# -- a case that fails leaves the others ------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where results are kept during a test; nothing is asked of the machine."""
    monkeypatch.setattr(results, "FILE", tmp_path / "results" / "latest.json")
    monkeypatch.setattr(results, "others", lambda: 0.5)
    return results.FILE


def outcome(case: str, figure: float | None, reason: str = "") -> runner.Outcome:
    rows = [] if figure is None else [Row(case.upper(), figure, "ms", "", None, "", None)]
    return runner.Outcome(case, rows, 2.0, reason)


def test_what_was_measured_is_kept_after_each_case_also_when_the_next_one_fails(
    kept: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def run(case: str) -> runner.Outcome:
        before = results.read()
        seen.append(list(before.cases) if before else [])
        return outcome(case, 1.0) if case == "b1" else outcome(case, None, "failed: no disk")

    monkeypatch.setattr(runner, "run", run)
    command.main(["b1", "b2", "b3"])
    assert seen == [[], ["b1"], ["b1", "b2"]]
    found = results.read()
    assert found is not None
    assert [(row.case, row.figure, row.probe) for row in found.rows] == [
        ("B1", 1.0, ""),
        ("B2", None, "failed: no disk"),
        ("B3", None, "failed: no disk"),
    ]
    said = capsys.readouterr().out
    assert "not measured: b2: failed: no disk" in said
    assert "other programs have 50% of the processors" in said
    assert "  b1                 2.0" in said


def test_a_case_that_is_named_replaces_its_figures_and_a_whole_run_begins_anew(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = iter((1.0, 2.0, 3.0))
    monkeypatch.setattr(runner, "run", lambda case: outcome(case, next(figures)))
    command.main(["b1", "b2"])
    command.main(["b2"])
    found = results.read()
    assert found is not None
    assert [(row.case, row.figure) for row in found.rows] == [("B1", 1.0), ("B2", 3.0)]
    monkeypatch.setattr(runner, "run", lambda case: outcome(case, 4.0))
    monkeypatch.setattr(command, "CASES", {"b1": CASES["b1"]})
    command.main([])
    found = results.read()
    assert found is not None
    assert [(row.case, row.figure) for row in found.rows] == [("B1", 4.0)]


def test_results_of_another_version_are_no_results(kept: Path) -> None:
    kept.parent.mkdir()
    for text in ("", "[]", '{"machine": "x", "rows": []}', '{"machine": "x", "cases": {"b1": {}}}'):
        kept.write_text(text)
        assert results.read() is None
    with pytest.raises(SystemExit, match="nothing was measured yet"):
        command.main(["--last"])


def test_a_table_says_its_machine_its_minutes_and_how_quiet_it_was(kept: Path) -> None:
    found = results.Results("a machine")
    for number, case in enumerate(("b1", "b2", "b3")):
        found.put(outcome(case, 1.0), number / 100, 3600.0 * (number + 1) + 60)
    assert found.words == (
        "a machine; 1970-01-01 01:00 to 1970-01-01 03:01 UTC; "
        "others had 1% of its processors between cases, 2% at most"
    )


def test_a_case_that_raises_is_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(_folder: Path) -> list[Row]:
        raise RuntimeError("no\nserver")

    monkeypatch.setattr(cases, "case", lambda _name: fails)
    assert runner.measure("b1", tmp_path) == {"reason": "failed: RuntimeError: no server"}
    assert "Traceback" in capsys.readouterr().err


def test_a_case_runs_in_a_process_of_its_own_in_a_folder_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_BENCH_FOLDER", str(tmp_path))
    monkeypatch.setenv("ANABRANCH_BENCH_CASE_SECONDS", str(SECONDS))
    found = runner.run("n1")
    assert found.rows
    assert found.reason == ""
    assert found.seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_does_not_end_is_ended_with_all_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_BENCH_FOLDER", str(tmp_path))
    monkeypatch.setenv("ANABRANCH_BENCH_CASE_SECONDS", "0.01")
    found = runner.run("server")
    assert (found.rows, found.reason) == ([], "did not end within 0.01 s")
    assert found.shown[0].probe == found.reason


def test_the_marks_of_a_measurement_reach_every_process_it_begins() -> None:
    mark = f"of-this-test-{os.getpid()}"
    environment = {**os.environ, measuring.MARK: mark}
    code = "import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None
        found = measuring.marked(mark) if Path("/proc/self/stat").exists() else {process.pid: []}
        process.stdin.close()
    assert set(found) == {process.pid}
