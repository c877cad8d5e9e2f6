"""The files for containers and for Grafana name only what there is. They are built elsewhere."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
import urllib.request
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from anabranch.settings import DEFAULTS, PREFIX, Settings, parse
from anabranch.surfaces.cli import parser
from anabranch.surfaces.http.app import ALL_ROUTES
from hangs import HANG_SECONDS
from shared_store import PARTITIONS, fresh_schema
from surfaces.cli.server_in_thread import served

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
MADE_BY_THE_USER = {"deploy/read.token"}  # a token is in no repository
PORT = str(Settings().serve_port)


def check_command(words: list[str]) -> Any:
    """The grammar takes it; it exits where it does not."""
    return parser.build(words[0]).parse_args(words)


def check_environment(variables: dict[str, str]) -> None:
    """Every variable of ours is a setting, and the value is one that it takes."""
    for name, value in variables.items():
        if name.startswith(PREFIX):
            field = name.removeprefix(PREFIX).lower()
            assert field in DEFAULTS, name
            if not value.startswith("${"):
                parse(field, value, name)


# -- Dockerfile --------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    return [(line.split()[0], line.split(None, 1)[1]) for line in text.splitlines() if line]


def of(kind: str) -> list[str]:
    return [rest for name, rest in instructions() if name == kind]


def test_the_image_is_built_from_files_that_there_are_and_that_are_not_left_out() -> None:
    taken = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert taken[0] == "*"
    kept = {line[1:] for line in taken if line.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    copied = [words.split()[:-1] for words in of("COPY") if not words.startswith("--from")]
    for name in [each for words in copied for each in words]:
        assert (ROOT / name).exists(), name
        assert name.split("/")[0] in kept, name
    assert not any(fnmatch("src", line) for line in taken[1:] if not line.startswith("!"))


def test_nothing_without_a_hash_comes_into_the_image() -> None:
    installs = [words for words in of("RUN") if "pip" in words]
    (locked, ours) = (set(shlex.split(words)) for words in installs)
    assert locked >= {"--require-hashes", "--only-binary", "requirements/image.lock"}
    assert ours >= {"--no-index", "--no-deps", "--no-build-isolation"}


def test_the_image_has_what_the_settings_of_compose_need() -> None:
    locked = (ROOT / "requirements" / "image.lock").read_text(encoding="utf-8")
    names = set(re.findall(r"^([\w.-]+)==", locked, re.M))
    environment = SERVICES["server"]["environment"]
    assert environment["ANABRANCH_STORE"].startswith("postgresql://")
    assert "ANABRANCH_SECRET_KEY" in environment
    assert names >= {"psycopg", "psycopg-binary", "cryptography"}


def test_both_stages_stand_on_an_image_that_can_be_given_with_its_digest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, _, default = of("ARG")[0].partition("=")
    assert {base.split()[0] for base in of("FROM")} == {f"${{{name}}}"}
    assert instructions()[0][0] == "ARG"  # one behind FROM has no value there
    minor = re.fullmatch(r"python:(3\.\d+)-slim(@sha256:[0-9a-f]{64})?", default)
    assert minor is not None
    assert f"Programming Language :: Python :: {minor[1]}" in project["classifiers"]
    assert "anabranch" in project["scripts"]
    for service in OURS:
        assert SERVICES[service]["build"]["args"] == {name: f"${{{name}:-{default}}}"}


def test_the_image_runs_a_verb_as_a_user_of_its_own_with_settings_that_there_are() -> None:
    assert json.loads(of("ENTRYPOINT")[0]) == ["anabranch"]
    assert check_command(json.loads(of("CMD")[0])).verb == "serve"
    check_environment(dict(pair.split("=", 1) for pair in shlex.split(" ".join(of("ENV")))))
    assert of("USER") == ["anabranch"]
    assert of("EXPOSE") == [PORT]
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_its_health_is_asked_at_a_route_that_needs_no_token() -> None:
    ((port, path),) = re.findall(r"http://127\.0\.0\.1:(\d+)(/[\w/]+)", of("HEALTHCHECK")[0])
    assert port == PORT
    (route,) = [each for each in ALL_ROUTES if (each.method, each.path) == ("GET", path)]
    assert route.scope == "open"


# -- compose -----------------------------------------------------------------------------------

SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if "build" in service]


def test_services_depend_on_services_and_mount_what_there_is() -> None:
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", ())) <= SERVICES.keys(), name
        assert "image" in service, name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            if source.startswith("./"):
                there = source.removeprefix("./")
                assert (ROOT / there).is_file() or there in MADE_BY_THE_USER, source
            else:
                assert source in COMPOSE["volumes"], source
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert set(ignored) >= MADE_BY_THE_USER


@pytest.mark.parametrize("name", OURS)
def test_commands_and_settings_of_services_are_those_of_anabranch(name: str) -> None:
    service = SERVICES[name]
    options = check_command(service["command"])
    assert options.verb in ("serve", "worker")
    check_environment(service["environment"])
    grace = float(service["environment"].get("ANABRANCH_GRACE_SECONDS", Settings().grace_seconds))
    assert float(service["stop_grace_period"].removesuffix("s")) > grace
    for published in service.get("ports", ()):
        assert published.startswith("127.0.0.1:"), "a proxy with TLS stands before it"
        assert published.endswith(f":{PORT}")


def test_the_commands_that_come_first_are_commands() -> None:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    commands = re.findall(r"^#   docker compose run --rm (\w+) (.+)$", text, re.M)
    assert len(commands) == 2
    for service, words in commands:
        assert service in OURS
        check_command(shlex.split(words))


def test_a_database_waits_until_it_answers_and_has_a_password_of_the_user() -> None:
    assert SERVICES["server"]["depends_on"]["db"]["condition"] == "service_healthy"
    assert SERVICES["db"]["healthcheck"]["test"][1] == "pg_isready"
    asked = [SERVICES["db"]["environment"]["POSTGRES_PASSWORD"]]
    asked += [SERVICES["server"]["environment"][name] for name in ("PGPASSWORD",)]
    assert all(each.startswith("${DB_PASSWORD:?") for each in asked)
    store = SERVICES["server"]["environment"]["ANABRANCH_STORE"]
    user, name = (SERVICES["db"]["environment"][key] for key in ("POSTGRES_USER", "POSTGRES_DB"))
    assert store == f"postgresql://{user}@db/{name}"


# -- Prometheus and Grafana --------------------------------------------------------------------


def panels() -> list[dict[str, Any]]:
    return [each for each in DASHBOARD["panels"] if each["type"] != "row"]


def test_prometheus_asks_the_server_where_it_answers() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert ("GET", job["metrics_path"]) in {(each.method, each.path) for each in ALL_ROUTES}
    assert job["static_configs"][0]["targets"] == [f"server:{PORT}"]
    mounted = [each.split(":")[1] for each in SERVICES["prometheus"]["volumes"]]
    assert job["authorization"]["credentials_file"] in mounted
    (source,) = yaml.safe_load((DEPLOY / "grafana-source.yml").read_text())["datasources"]
    chosen = DASHBOARD["templating"]["list"][0]["current"]["value"]
    assert (source["uid"], source["url"]) == (chosen, "http://prometheus:9090")
    (found,) = yaml.safe_load((DEPLOY / "grafana-dashboards.yml").read_text())["providers"]
    dashboard = SERVICES["grafana"]["volumes"][-1].split(":")[1]
    assert dashboard.startswith(found["options"]["path"])


def test_every_panel_has_a_title_a_unit_and_words_about_it() -> None:
    assert len(panels()) >= 20
    titles = [each["title"] for each in DASHBOARD["panels"]]
    assert all(titles)
    assert len(set(titles)) == len(titles)
    assert len({each["id"] for each in DASHBOARD["panels"]}) == len(titles)
    for each in panels():
        assert each["fieldConfig"]["defaults"]["unit"], each["title"]
        assert each["description"].endswith("."), each["title"]
        assert each["targets"], each["title"]
        assert all(target["legendFormat"] for target in each["targets"])


def test_no_panel_covers_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for each in DASHBOARD["panels"]:
        at = each["gridPos"]
        assert at["x"] + at["w"] <= 24
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert taken.setdefault((x, y), each["title"]) == each["title"]


def test_every_metric_of_the_dashboard_is_one_of_a_server_with_the_labels_that_it_is_asked_for(
    postgres: str,
) -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    store = fresh_schema(postgres)
    with served(store, store_partitions=PARTITIONS, keep_runs="all=30d") as server:
        text = urllib.request.urlopen(f"{server.url}/metrics", timeout=HANG_SECONDS).read().decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    asked = set()
    for each in panels():
        for target in each["targets"]:
            expression = target["expr"]
            assert expression.count("(") == expression.count(")")
            names = re.findall(r"\b(anabranch_\w+)\{", expression)
            assert names, expression
            for name in names:
                bare = name.removesuffix("_bucket")
                assert bare in types, f"{name} of {each['title']!r} is no metric of a server"
                assert (types[bare] == "histogram") is name.endswith("_bucket"), name
                grows = name.endswith("_bucket") or types[bare] == "counter"
                assert grows is bool(re.search(r"(rate|increase)\(", expression)), expression
                asked.add(bare)
                check_labels(bare, expression, target["legendFormat"], page)
    assert len(asked) >= 30


def check_labels(name: str, expression: str, legend: str, page: str) -> None:
    """What is told apart is a label that the page names for the metric."""
    wanted = {
        label.strip()
        for listed in re.findall(r"by \(([^)]*)\)", expression)
        for label in listed.split(",")
    } | set(re.findall(r"\{\{(\w+)\}\}", legend))
    (row,) = [line for line in page.splitlines() if line.startswith("| ") and f"`{name}`" in line]
    labels = row.split("|")[2]
    for label in wanted - {"le", "instance", "job"}:
        assert label in labels, (name, label)
