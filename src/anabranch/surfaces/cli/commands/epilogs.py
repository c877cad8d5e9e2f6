"""What stands below the help of each verb: an example or two, and the exit codes it has."""

from __future__ import annotations

_BAD_USAGE = "bad usage, or refused; nothing was changed"
_BROKEN = "the engine or the server failed, or did not answer"

_RUNS = {
    0: "completed",
    1: "failed (also cancelled, deadline_exceeded, step_timeout)",
    2: "bad usage or definition; nothing was changed",
    3: "partial, or completed with problems that nothing handled (--lenient: 0)",
    4: "left waiting or paused, or left as it is for want of parts (reason on standard error)",
    130: "interrupted; the run can be resumed",
}
_PLAIN = {0: "done", 1: _BROKEN, 2: _BAD_USAGE}
_SERVER = {
    0: "stopped in order",
    1: "the engine stopped by itself",
    2: "bad usage; nothing was served",
    130: "stopped at once, by a second Ctrl-C",
}

#: The exit codes of the verbs that have more to say than done, broken or bad usage.
_CODES: dict[str, dict[int, str]] = {
    "run": _RUNS,
    "resume": {**_RUNS, 2: _BAD_USAGE},
    "redrive": {**_RUNS, 2: _BAD_USAGE},
    "template": {**_PLAIN, 3: "of `run`: as `anabranch run`, also 4 and 130"},
    "check": {0: "no errors", 1: _BROKEN, 2: "errors (with --strict also warnings), or bad usage"},
    "fmt": {
        0: "done; with --check: nothing would change",
        1: f"with --check: something would change; else {_BROKEN}",
        2: "not a playbook that can be read, or bad usage",
    },
    "bulk": {**_PLAIN, 3: "some runs were left alone; the reason stands beside each"},
    "participants": {**_PLAIN, 1: f"of `probe`: one is not there; else {_BROKEN}"},
    "market": {0: "no problems", 2: "a document has problems, or bad usage"},
    "passport": {0: "done; of `verify`: all hold", 2: "of `verify`: one does not; or bad usage"},
    "store": {
        0: "done; of `check` and `copy`: everything is sound",
        1: f"of `check` and `copy`: something is damaged; else {_BROKEN}",
        2: _BAD_USAGE,
    },
    "security": {0: "nothing is risky", 1: f"something is risky; else {_BROKEN}", 2: _BAD_USAGE},
    "pools": {
        0: "done; without a server: every cluster can be used",
        1: f"without a server: a cluster is away or unfit; else {_BROKEN}",
        2: _BAD_USAGE,
    },
    "cluster": {
        0: "done; of `drain`: the server owns nothing any more",
        1: f"of `drain`: another command took the server back; else {_BROKEN}",
        2: _BAD_USAGE,
        130: "of `drain`: interrupted; the server goes on draining",
    },
    "node": {
        0: "done; of `serve`: stopped in order; of `check`: every card is what its events come to",
        1: "the order was rejected, a card differs, or the node failed or did not answer",
        2: _BAD_USAGE,
        130: "of `serve`: stopped at once, by a second Ctrl-C",
    },
    "dator": {
        0: "done; of `serve` and `role`: stopped in order",
        1: "the node failed or did not answer",
        2: _BAD_USAGE,
        130: "of `serve` and `role`: stopped at once, by a second Ctrl-C",
    },
    "story": {
        0: "every law held",
        1: "a law was broken, or a node did not do what every story needs",
        2: _BAD_USAGE,
        130: "interrupted; the nodes are stopped",
    },
    "arca": {
        0: "done; of `run --wait`: completed; of `serve`: stopped in order",
        1: "of `run --wait`: failed; else the node or the module failed, or did not answer",
        2: _BAD_USAGE,
        4: "of `run --wait`: left waiting, paused or running",
    },
    "offers": {0: "done", 1: f"of `put`: one was rejected; else {_BROKEN}", 2: _BAD_USAGE},
    "serve": _SERVER,
    "dev": _SERVER,
    "worker": {
        0: "stopped in order, or with --once nothing waits any more",
        2: "it cannot work: bad usage, or a token that the server does not take",
        130: "ended by a second signal; its jobs are lost with their leases",
    },
    "simulate": {
        0: "every law held for every seed",
        1: "a law did not hold; the seed that repeats it is named",
        2: "bad usage or definition",
    },
    "test": {
        0: "every plan and scenario passed",
        1: "one did not; which expectation, and what came instead, is named",
        2: "bad usage, or a file that is none of these; nothing was played",
    },
    "demo": {0: "everything went as promised", 1: "something did not", 2: "bad usage"},
}

_EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "run examples/hello.yaml --input name=Ada",
        "run examples/arca/best_of.json --participants examples/arca/book.yaml",
        "run flow.yaml --pool heavy=dask://127.0.0.1:8786 --tools shop.tools",
    ),
    "check": (
        "check examples/*.yaml",
        "check flow.json --rules rules --strict",
        "check --registry 0x… --rpc https://node.example",
    ),
    "registry": ("registry 0x… --rpc https://node.example",),
    "fmt": ("fmt old.yaml", "fmt --check examples/*.yaml"),
    "graph": ("graph flow.yaml --format svg -o flow.svg", "graph last"),
    "overview": ("overview", "overview --window 7d --json"),
    "runs": ("runs --status waiting --status paused", "runs --search 'bank 500' --limit 5"),
    "show": ("show last", "show last --items squares --state failed"),
    "events": ("events last", "events last --follow --json", "events last --tasks"),
    "logs": ("logs last", "logs last fetch --attempt 2", "logs last --follow --level warning"),
    "get": ("get anabranch:run:8sqk6d30y6s1p2vb/step/report",),
    "explain": ("explain last",),
    "resume": ("resume", "resume last"),
    "pause": ("pause last --reason 'the supplier is down'",),
    "cancel": ("cancel last --reason 'ordered twice'",),
    "patch": ("patch last approved=true", "patch last spent=12 --reduce sum"),
    "loop": ("loop last squares --window 2", "loop last squares --stop"),
    "retry": ("retry last fetch --reason 'the disk has room again'",),
    "skip": ("skip last fetch", "skip last quote --result '{\"price\": 12}' --actor kim"),
    "decide": (
        "decide last may_i --fulfil --actor kim --evidence '{\"ticket\": 4711}'",
        "decide last may_i --reject --actor kim --reason 'still needed'",
    ),
    "signal": (
        "signal last paid '{\"order\": 7}'",
        "signal last paid '{\"order\": 7}' --ttl 1h --id payment-7",
    ),
    "redrive": ("redrive last --dry-run", "redrive last", "redrive last --from match"),
    "purge": ("purge --older-than 90d --dry-run", "purge --older-than 12h --status completed"),
    "bulk": (
        "bulk cancel --name quotes --status waiting --dry-run",
        "bulk redrive --status failed",
    ),
    "session": ("session list", "session wake last --step POLL"),
    "dispatches": ("dispatches last", "dispatches last --status timeout"),
    "snapshot": ("snapshot last",),
    "template": (
        "template put examples/arca/template.json",
        "template run solicit.v1 --param text=rivers --dry-run",
    ),
    "participants": ("participants list --participants book.yaml",),
    "market": ("market check offer.json --at now", "market check orders/*.json --json"),
    "passport": ("passport new node.key", "passport verify passports"),
    "serve": (
        "serve",
        "serve --store runs.db --port 0 --tokens-required",
        "serve --pool heavy=dask://127.0.0.1:8786 --tools shop.tools",
    ),
    "dev": ("dev", "dev --no-browser --port 0"),
    "register": ("register flows/*.yaml", "register load.yaml --path etl/load"),
    "catalog": ("catalog list --prefix etl/", "catalog show etl/load@2"),
    "credential": (
        "credential add pg_main --type postgres --from-file pg_main.json",
        "credential rotate pg_main --value-stdin < pg_main.json",
        "credential rekey --new-key-file new.key",
    ),
    "token": ("token create --scope read --scope operate --name kim --days 90", "token list"),
    "cluster": (
        "cluster --store postgresql://anabranch@db.example/anabranch",
        "cluster owner last",
        "cluster drain 3f1c",
    ),
    "node": (
        "node init buyer",
        "node serve --node buyer",
        'node orders place --offer offer:summaries --input \'{"text": "…"}\' --node buyer',
    ),
    "dator": (
        "dator role --function summaries:summarise --port 48001",
        "dator queue --node provider",
        "dator accept remote-execution:order:one --node provider",
    ),
    "arca": (
        "arca run examples/arca/best_of.json --wait --node buyer",
        "arca runs --status active --node buyer",
        "arca confirm run:06f3… review --actor kim --node buyer",
    ),
    "offers": (
        "offers put offer.json --node buyer",
        "offers list --service-type text/summarise --node buyer",
        "offers trust participant:did:key:z6Mk… --catalog offers.db",
        "offers sync --node buyer",
    ),
    "export": ("export last --file order.jsonl.gz", "export 8sqk 8sqm > runs.jsonl.gz"),
    "import": ("import order.jsonl.gz", "import order.jsonl.gz --store other.db --dry-run"),
    "store": (
        "store backup /backups/monday.db",
        "store check --json",
        "store restore /backups/monday.db --store anabranch.db",
        "store copy anabranch.db postgresql://anabranch@db.example/anabranch",
    ),
    "limits": ("limits", "limits 'invoices[acme]' --json"),
    "schedule": (
        "schedule add nightly reports/nightly --cron '0 3 * * *' --timezone Europe/Berlin",
        "schedule next --cron '30 2 * * *' --timezone Europe/Berlin",
        "schedule backfill nightly --from 2026-11-01 --to 2026-11-08 --dry-run",
    ),
    "trigger": (
        "trigger add paid quotes --hook --credential shop --input 'order={{ body.order }}'",
        "trigger add report reports/daily --after load_orders --where tenant=north",
        'trigger test paid --body \'{"order": "A-17"}\'',
    ),
    "alias": ("alias set prod quotes@3", "alias rollback prod", "run prod"),
    "webhook": (
        "webhook create https://example.org/hook --kind 'run.*'",
        "webhook deliveries WEBHOOK --state dead",
    ),
    "worker": ("worker --server http://127.0.0.1:8629 --pool gpu --concurrency 4",),
    "pools": (
        "pools --server http://127.0.0.1:8629",
        "pools --pool heavy=dask://127.0.0.1:8786",
    ),
    "security": ("security", "security --server https://runs.example --json"),
    "workers": ("workers --server http://127.0.0.1:8629",),
    "simulate": ("simulate examples/fan_out.yaml --seeds 200", "simulate flow.yaml --seed 17"),
    "test": ("test orders.bundle.json", "test plans.json --mocks mocks.json --json"),
    "demo": ("demo", "demo --fast"),
    "settings": ("settings --changed", "settings store server --json"),
    "init": ("init", "init shop"),
    "schema": ("schema noetl --out playbook.schema.json", "schema arca"),
    "completion": ("completion bash", "completion fish"),
    "examples": ("examples", "examples hello", "examples arca/best_of --copy examples"),
    "story": ("story 006", "story 006 --variant conflict", "story 009 --kill taken --keep"),
}


def of_all() -> str:
    """Below the help of the command itself."""
    return _codes(_RUNS, "exit codes of runs (`anabranch VERB --help` has those of each verb):")


def of_verb(name: str) -> str:
    examples = "".join(f"  anabranch {words}\n" for words in _EXAMPLES[name])
    heading = "examples:" if len(_EXAMPLES[name]) > 1 else "example:"
    return f"{heading}\n{examples}\n{_codes(_CODES.get(name, _PLAIN), 'exit codes:')}"


def _codes(codes: dict[int, str], heading: str) -> str:
    lines = (f"  {code:<5}{meaning}" for code, meaning in codes.items())
    return "\n".join((heading, *lines)) + "\n"
