"""Scripts, uploads and artifacts in buckets: who is told what, and what is said when it fails."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import importlib.util
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch import Engine
from anabranch.app import RunResult
from anabranch.errors import InputError
from anabranch.kernel.values import Answer, Fault
from anabranch.operations.access.credentials import CredentialDraft
from anabranch.settings import Settings
from anabranch.work.kind_options import BucketOptions
from anabranch.work.kinds.artifact import Artifact
from anabranch.work.kinds.buckets import places as module
from anabranch.work.kinds.buckets import session
from anabranch.work.kinds.buckets.buckets import Buckets
from anabranch.work.kinds.buckets.gcs import Gcs
from anabranch.work.kinds.buckets.places import read_place
from anabranch.work.kinds.http.performer import Http
from anabranch.work.kinds.python.performer import Python
from anabranch.work.kinds.script_sources import ScriptSources
from anabranch.work.network.addresses import read_policy
from anabranch.work.port import Performer
from anabranch.work.secrets.redaction import Redactor, giving
from anabranch.work.sql.sqlite import Sqlite

from ..support import fault_of, perform, run, server, task

needs_s3fs = pytest.mark.skipif(
    importlib.util.find_spec("s3fs") is None, reason="the extra `buckets` is not installed"
)
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"
KEY, SECRET = "AKIAEXAMPLEEXAMPLE00", "hunter2/hunter3/hunter4/hunter5"
TOKEN = "ya29.hunter2-hunter3-hunter4"


class Service:
    """Objects by path, as S3 and Google answer for them; and who asked."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = {f"/store/{name.replace('_', '.')}": each for name, each in objects.items()}
        self.seen: list[tuple[str, str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 0
        self.away = ""  # where a redirect leads
        self.silent = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append((request.method, request.path, request.headers.get("Authorization", "")))
        self.headers.append({name.lower(): text for name, text in request.headers.items()})
        if request.path == "/store/silent":
            await self.silent.wait()
        if self.away:
            headers = {"Location": self.away, "x-amz-bucket-region": "eu-central-1"}
            return web.Response(status=307, headers=headers)
        if self.status:
            return web.Response(status=self.status, text="<Error><Code>Trouble</Code></Error>")
        if request.path == "/token":
            return await self._token(request)
        if request.headers.get("Expect"):
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        if request.method == "PUT":
            self.objects[request.path] = await request.read()
            return web.Response(headers={"ETag": '"x"'})
        found = self.objects.get(request.path)
        if found is None:
            return web.Response(status=404, text="<Error><Code>NoSuchKey</Code></Error>")
        return web.Response(body=found)

    async def _token(self, request: web.BaseRequest) -> web.Response:
        self.form = await request.post()
        return web.json_response({"access_token": TOKEN, "expires_in": 3600})

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        try:
            async with server(self.answer) as address:
                yield address
        finally:
            self.silent.set()


def keys(address: str) -> dict[str, str]:
    return {"access_key_id": KEY, "secret_access_key": SECRET, "endpoint_url": address}


def with_scripts(buckets: Buckets) -> Python:
    return Python(scripts=ScriptSources(None, lambda: buckets))


def asked(service: Service, make: Any, **inputs: Any) -> Answer:
    """The answer of one task; `$URL` in its `auth` is where the service is."""

    async def scenario() -> Answer:
        http = Http()
        made: Performer = make(Buckets(http=http))
        try:
            async with service.open() as address:
                filled = json.loads(json.dumps(inputs).replace("$URL", address))
                return await perform(made, task(**filled))
        finally:
            await http.close()
            if hasattr(made, "close"):
                await made.close()

    return run(scenario())


def gcs(service: Service, **inputs: Any) -> Answer:
    inputs.setdefault("auth", {"token": TOKEN, "endpoint_url": "$URL"})
    return asked(service, lambda made: Gcs(made, 1000), **inputs)


def artifact(service: Service, **inputs: Any) -> Answer:
    inputs.setdefault("auth", keys("$URL"))
    return asked(service, lambda made: Artifact(buckets=made), **inputs)


def refused(answer: Answer) -> Fault:
    return fault_of(answer)


# -- scripts, through an engine --------------------------------------------------------------


async def done(service: Service, body: str, *, kind: str, data: dict[str, Any]) -> RunResult:
    """The run, of which nobody is shown a secret."""
    async with (
        service.open() as address,
        Engine(":memory:", settings=Settings(poll_seconds=0.05)) as engine,
    ):
        filled = json.loads(json.dumps(data).replace("$URL", address))
        engine.credentials.add(CredentialDraft(name="cloud", type=kind, data=filled))
        result = await engine.wait(await engine.start(HEAD + body))
        events = [event async for event in engine.events(result.run)]
        shown = repr((result, events, engine.read.show(result.run)))
        assert SECRET not in shown
        assert TOKEN not in shown
        return result


WORK = {
    "python": ("kind: python", b"result = 6 * 7"),
    "sqlite": ('kind: sqlite, database: ":memory:"', b"select 42 as n"),
    "script": ("kind: script", b"print(42)"),
}


@needs_s3fs
@pytest.mark.parametrize("kind", WORK)
def test_a_script_comes_from_s3_with_the_credential_it_names(kind: str) -> None:
    tool, text = WORK[kind]
    source = "{type: s3, region: eu-west-1, auth: cloud}"
    body = f"workflow:\n  - step: s\n    tool: {{{tool}, script: {{uri: 's3://store/job', "
    service = Service(job=text)
    result = run(done(service, f"{body}source: {source}}}}}\n", kind="s3", data=keys("$URL")))
    assert result.status == "completed", result.problem
    assert "42" in repr(result.result)
    [(method, path, authorization)] = service.seen
    assert (method, path) == ("GET", "/store/job")
    assert authorization.startswith("AWS4-HMAC-SHA256 ")
    assert f"Credential={KEY}/" in authorization
    assert "/eu-west-1/s3/" in authorization
    assert SECRET not in repr(service.headers)


@needs_s3fs
@pytest.mark.parametrize(
    "script",
    [
        "{uri: 'gs://store/job', source: {type: gcs, auth: cloud}}",
        "{uri: job, source: {type: gcs, bucket: store, auth: cloud}}",
        "{uri: 'gs://store/job', source: {auth: cloud}}",
    ],
)
def test_a_script_comes_from_google_with_a_token(script: str) -> None:
    service = Service(job=b"result = 42")
    body = f"workflow:\n  - step: s\n    tool: {{kind: python, script: {script}}}\n"
    data = {"token": TOKEN, "endpoint_url": "$URL"}
    result = run(done(service, body, kind="gcs", data=data))
    assert (result.status, result.result) == ("completed", 42), result.problem
    assert service.seen == [("GET", "/store/job", f"Bearer {TOKEN}")]


@needs_s3fs
def test_hmac_keys_sign_requests_to_google() -> None:
    service = Service(job=b"result = 42")
    script = "{uri: 'gs://store/job', source: {type: gcs, auth: cloud}}"
    body = f"workflow:\n  - step: s\n    tool: {{kind: python, script: {script}}}\n"
    data = {"key_id": KEY, "secret": SECRET, "endpoint": "$URL"}
    result = run(done(service, body, kind="gcs_hmac", data=data))
    assert result.status == "completed", result.problem
    assert f"Credential={KEY}/" in service.seen[0][2]


# -- who asks --------------------------------------------------------------------------------


def account(address: str) -> dict[str, str]:
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    from cryptography.hazmat.primitives import serialization

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account",
        "client_email": "job@example.org",
        "private_key_id": "k1",
        "private_key": text.decode(),
        "token_uri": f"{address}/token",
    }


@needs_s3fs
@pytest.mark.parametrize("spelling", ["service_account_json", "fields"])
def test_a_service_account_asks_for_a_token_and_sends_that(spelling: str) -> None:
    service, made = Service(), account("$URL")
    whole = {"service_account_json": json.dumps(made)} if spelling != "fields" else made
    answer = gcs(
        service, data="hi", destination="gs://store/a", auth={**whole, "endpoint_url": "$URL"}
    )
    assert answer.status == "ok", answer
    assert [one[:2] for one in service.seen] == [("POST", "/token"), ("PUT", "/store/a")]
    assert service.seen[1][2] == f"Bearer {TOKEN}"
    head, claims, signature = str(service.form["assertion"]).split(".")
    assert decoded(head) == {"alg": "RS256", "typ": "JWT", "kid": "k1"}
    assert decoded(claims)["iss"] == "job@example.org"
    assert decoded(claims)["aud"].endswith("/token")
    verify(made["private_key"], f"{head}.{claims}".encode(), signature)


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def verify(private: str, signed: bytes, signature: str) -> None:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    key = serialization.load_pem_private_key(private.encode(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    key.public_key().verify(raw, signed, padding.PKCS1v15(), hashes.SHA256())


@pytest.fixture
def keeping(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine that keeps keys, endpoints and proxies wherever one may look for them."""
    (tmp_path / ".aws").mkdir()
    text = "[default]\naws_access_key_id = AKIAFILE\naws_secret_access_key = filefilefile\n"
    (tmp_path / ".aws" / "credentials").write_text(text)
    for name, value in {
        "HOME": str(tmp_path),
        "AWS_ACCESS_KEY_ID": "AKIAENVIRONMENT",
        "AWS_SECRET_ACCESS_KEY": "environmentenvironment",
        "AWS_SESSION_TOKEN": "session",
        "AWS_PROFILE": "another",
        "AWS_DEFAULTS_MODE": "auto",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "HTTP_PROXY": "http://127.0.0.1:1",
    }.items():
        monkeypatch.setenv(name, value)
    own = {"key": "AKIAFSSPEC", "secret": "fsspecfsspec", "endpoint_url": "http://127.0.0.1:1"}
    conf = importlib.import_module("fsspec.config").conf
    monkeypatch.setitem(conf, "s3", {**own, "anon": False, "profile": "another"})
    session.session_of_nobody.cache_clear()


@needs_s3fs
@pytest.mark.usefixtures("keeping")
def test_nothing_that_the_machine_keeps_says_who_asks() -> None:
    service = Service(a_txt=b"public")
    answer = artifact(service, uri="s3://store/a.txt", auth={"endpoint_url": "$URL"})
    assert answer.result == "public"
    assert service.seen == [("GET", "/store/a.txt", "")]
    answer = artifact(service, uri="s3://store/a.txt")
    assert answer.result == "public"
    assert f"Credential={KEY}/" in service.seen[1][2]
    assert "x-amz-security-token" not in service.headers[1]


@needs_s3fs
@pytest.mark.usefixtures("keeping")
@pytest.mark.parametrize(
    ("place", "endpoint"),
    [
        ("s3://store/a", "https://s3.amazonaws.com"),
        ("gs://store/a", "https://storage.googleapis.com"),
    ],
)
def test_without_an_endpoint_it_is_that_of_the_cloud(place: str, endpoint: str) -> None:
    async def scenario() -> tuple[str, Any]:
        async with Buckets()._opened(read_place(place, "uri"), {}, task()) as system:
            client = await system.set_session()
            return client.meta.endpoint_url, await system.session.get_credentials()

    assert run(scenario()) == (endpoint, None)


@needs_s3fs
def test_it_reaches_the_addresses_that_calls_may_reach() -> None:
    service = Service(a=b"1")

    def guarded(_made: Buckets) -> Artifact:
        return Artifact(buckets=Buckets(BucketOptions(addresses=read_policy("public"))))

    for place in ("s3://store/a", "gs://store/a"):
        fault = refused(asked(service, guarded, uri=place, auth={"endpoint_url": "$URL"}))
        assert (fault.kind, fault.code, fault.retryable) == ("config", "ADDRESS_REFUSED", False)
        assert "http_addresses" in fault.message
    assert service.seen == []


@needs_s3fs
def test_a_service_account_asks_only_addresses_that_calls_may_reach() -> None:
    service = Service()

    async def scenario() -> Answer:
        from anabranch.work.kind_options import HttpOptions

        http = Http(HttpOptions(addresses=read_policy("public")))
        try:
            async with service.open() as address:
                given: dict[str, Any] = {"data": "x", "destination": "gs://store/a"}
                upload = task(**given, auth=account(address))
                return await perform(Gcs(Buckets(http=http), 1000), upload)
        finally:
            await http.close()

    fault = refused(run(scenario()))
    assert "http_addresses" in fault.message
    assert service.seen == []


@needs_s3fs
@pytest.mark.parametrize("place", ["gs://store/a", "s3://store/a"])
def test_a_redirect_takes_a_credential_nowhere_else(place: str) -> None:
    other, service = Service(a=b"other"), Service()

    async def scenario() -> Answer:
        async with other.open() as away, service.open() as address:
            service.away = f"{away}/store/a"
            auth = {"token": TOKEN} if place.startswith("gs") else keys(address)
            work = Artifact(buckets=Buckets())
            return await perform(work, task(uri=place, auth={**auth, "endpoint_url": address}))

    assert refused(run(scenario())).retryable is False
    assert service.seen
    assert other.seen == []


def test_an_endpoint_beside_a_credential_is_refused() -> None:
    script = {"uri": "s3://store/a", "source": {"auth": keys("$URL"), "endpoint_url": "$URL"}}
    service = Service(a=b"result = 1")
    fault = refused(asked(service, with_scripts, script=script))
    assert fault.kind == "config"
    assert "put endpoint_url into the credential" in fault.message
    assert service.seen == []


@pytest.mark.parametrize("kind", ["script", "artifact"])
def test_a_text_that_was_not_looked_up_is_not_sent_as_a_token(kind: str) -> None:
    service = Service(a=b"1")
    if kind == "script":
        script = {"uri": "gs://store/a", "source": {"type": "gcs", "auth": "cloud"}}
        answer = asked(service, with_scripts, script=script)
    else:
        answer = artifact(service, uri="gs://store/a", auth="cloud")
    assert "was not looked up" in refused(answer).message
    assert service.seen == []


def test_a_bucket_is_not_asked_where_calls_are_switched_off() -> None:
    off = Buckets(off=frozenset({"http"}))
    for place in ("gs://store/a", "s3://store/a"):
        fault = refused(run(perform(Artifact(buckets=off), task(uri=place))))
        assert (fault.kind, fault.code) == ("config", "KIND_OFF")


# -- uploads ---------------------------------------------------------------------------------


@needs_s3fs
def test_an_upload_tells_what_it_stored(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    service = Service()
    answer = gcs(
        service,
        source=str(tmp_path / "rows.csv"),
        destination="gs://store/daily/rows.csv",
        metadata={"run": 7},
    )
    assert answer.result == {
        "status": "success",
        "uri": "gs://store/daily/rows.csv",
        "bucket": "store",
        "blob": "daily/rows.csv",
        "size": 8,
        "content_type": "text/csv",
        "message": "Uploaded 8 bytes to GCS",
    }
    assert service.objects == {"/store/daily/rows.csv": b"a,b\n1,2\n"}
    assert service.seen == [("PUT", "/store/daily/rows.csv", f"Bearer {TOKEN}")]
    [headers] = service.headers
    assert headers["content-type"] == "text/csv"
    assert headers["x-goog-meta-run"] == "7"
    assert not [name for name in headers if name.startswith("x-amz-")]


@needs_s3fs
@pytest.mark.parametrize("destination", ["gs://store", "gs://store/", "gs://store/in/"])
def test_a_folder_gets_the_name_of_the_file(tmp_path: Path, destination: str) -> None:
    (tmp_path / "rows.csv").write_text("1")
    service = Service()
    answer = gcs(service, source=str(tmp_path / "rows.csv"), destination=destination)
    assert answer.result["uri"] == f"{destination.rstrip('/')}/rows.csv"


@needs_s3fs
@pytest.mark.parametrize(
    ("data", "stored", "media"),
    [("text", b"text", "text/plain"), ({"a": [1]}, b'{"a":[1]}', "application/json")],
)
def test_a_value_is_uploaded_as_text_or_json(data: Any, stored: bytes, media: str) -> None:
    service = Service()
    answer = gcs(service, data=data, destination="gs://store/value")
    assert answer.result["content_type"] == media
    assert service.objects == {"/store/value": stored}


@needs_s3fs
@pytest.mark.parametrize("place", ["gs://store/in/value.json", "s3://store/in/value.json"])
def test_an_artifact_in_a_bucket_is_fetched_as_it_was_put(place: str) -> None:
    service = Service()
    put = artifact(service, action="put", data={"a": 1}, uri=place, compress="gzip")
    assert put.result["uri"] == place
    assert artifact(service, uri=place, checksum=put.result["sha256"]).result == {"a": 1}


# -- what cannot be done ---------------------------------------------------------------------


@needs_s3fs
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [(403, "auth", False), (404, "not_found", False), (503, "server_error", True)],
)
def test_an_answer_that_is_no_success_has_the_kind_that_calls_give_it(
    status: int, kind: str, retryable: bool
) -> None:
    service = Service()
    service.status = status
    fault = refused(artifact(service, uri="s3://store/a"))
    assert (fault.kind, fault.code, fault.retryable) == (kind, f"HTTP_{status}", retryable)
    assert "s3://store/a" in fault.message
    assert len(service.seen) == 1, "trying again is the matter of the task"


@needs_s3fs
def test_a_server_that_is_not_there_or_silent_fails_the_task() -> None:
    away = {"endpoint_url": "http://127.0.0.1:1"}
    fault = refused(artifact(Service(), uri="s3://store/a", auth=away))
    assert (fault.kind, fault.code, fault.retryable) == ("connection", "CONN_REFUSED", True)
    fault = refused(artifact(Service(), uri="s3://store/silent", timeout=1))
    assert (fault.kind, fault.retryable) == ("timeout", True)


@needs_s3fs
def test_an_object_that_is_too_large_is_not_read_to_its_end() -> None:
    service = Service(a=b"x" * 1001)
    fault = refused(asked(service, made_small, uri="s3://store/a", auth=keys("$URL")))
    assert (fault.kind, fault.retryable) == ("config", False)
    assert "larger than 1,000 bytes (setting artifact_bytes)" in fault.message


def made_small(made: Buckets) -> Artifact:
    from anabranch.work.kind_options import ArtifactOptions

    return Artifact(None, ArtifactOptions(bytes_max=1000), buckets=made)


@needs_s3fs
@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_without_end_is_given_up(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_BYTES", 10_000)
    service, sent = Service(), 0

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(status=status)
        response.content_length = 100_000_000
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while sent < 100_000_000:
                await response.write(b"x" * 100_000)
                sent += 100_000
        return response

    monkeypatch.setattr(service, "answer", endless)
    answer = asked(service, made_small, uri="s3://store/a", auth=keys("$URL"))
    assert refused(answer).kind == ("config" if status == 200 else "connection")
    assert sent < 100_000_000


@needs_s3fs
def test_a_script_that_is_no_text_says_so() -> None:
    script = {"uri": "s3://store/a", "source": {"type": "s3", "auth": keys("$URL")}}
    answer = asked(
        Service(a=b"\xff\xfe"),
        lambda made: Sqlite(scripts=ScriptSources(None, lambda: made)),
        script=script,
        database=":memory:",
    )
    assert "a script is text, and this is not" in refused(answer).message


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"destination": "gs://store/a"}, "either source (a file) or data"),
        ({"destination": "gs://store/a", "data": 1, "source": "x"}, "either source"),
        ({"data": 1}, "destination must be text"),
        ({"data": 1, "destination": "s3://store/a"}, "must look like gs://bucket/key"),
        ({"data": 1, "destination": "gs://store"}, "names no object"),
        ({"data": 1, "destination": "gs://../a"}, "must look like"),
        ({"data": 1, "destination": "gs://store/../../x"}, "another object than it says"),
        ({"data": 1, "destination": "gs://store/a/%2E%2e/x"}, "another object than it says"),
        ({"data": 1, "destination": "gs://store/a?versionId=1"}, "another object than it says"),
        ({"data": 1, "destination": "gs://evil.example:80@x/a"}, "must look like"),
        ({"source": "/no/such/file", "destination": "gs://store/a"}, "does not exist"),
        ({"data": "x" * 1001, "destination": "gs://store/a"}, "setting artifact_bytes"),
        ({"data": 1, "destination": "gs://store/a", "metadata": {"a": "b\nc"}}, "plain ASCII"),
        ({"data": 1, "destination": "gs://store/a", "content_type": "a\r\nb"}, "media type"),
    ],
)
def test_what_cannot_be_uploaded_says_why(inputs: dict[str, Any], said: str) -> None:
    fault = refused(run(perform(Gcs(Buckets(), 1000), task(**inputs))))
    assert said in fault.message
    assert fault.retryable is False


@pytest.mark.parametrize(
    ("place", "auth", "said"),
    [
        ("s3://store/a", {"token": "x"}, "access_key_id and secret_access_key"),
        ("gs://store/a", {"user": "x"}, "service_account_json, token"),
        ("gs://store/a", {"service_account_json": "{}"}, "has no private_key"),
        ("s3://store/a", {"endpoint_url": "file:///etc"}, "must look like https://host:port"),
        ("s3://store/a", {"endpoint_url": "http://a@b/"}, "must look like https://host:port"),
    ],
)
def test_a_credential_that_cannot_be_used_says_what_it_lacks(
    place: str, auth: dict[str, str], said: str
) -> None:
    fault = refused(run(perform(Artifact(buckets=Buckets()), task(uri=place, auth=auth))))
    assert (fault.kind, fault.retryable) == ("config", False)
    assert said in fault.message


@pytest.mark.parametrize("place", ["s3://ab/c", "s3://Store/a", "s3://store", "gs://store/", "x"])
def test_an_address_that_names_no_object_is_refused(place: str) -> None:
    with pytest.raises(InputError):
        read_place(place, "uri")


def test_without_its_packages_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGE", "no_such_package_here")
    script = {"uri": "s3://store/a", "source": {"type": "s3"}}
    made: dict[str, Performer] = {
        "artifact": Artifact(buckets=Buckets()),
        "python": Python(scripts=ScriptSources(None, Buckets)),
        "gcs": Gcs(Buckets(), 1000),
    }
    given: dict[str, dict[str, Any]] = {
        "artifact": {"uri": "gs://store/a"},
        "python": {"script": script},
        "gcs": {"data": 1, "destination": "gs://store/a"},
    }
    for kind, performer in made.items():
        fault = refused(run(perform(performer, task(**given[kind]))))
        assert (fault.kind, fault.code, fault.retryable) == ("config", "MISSING_EXTRA", False)
        assert "pip install 'anabranch[buckets]'" in fault.message


@needs_s3fs
def test_a_token_that_a_service_repeats_is_not_shown() -> None:
    """A service account is given its token in the middle of the work: it is a secret from then."""
    scope = Redactor.of_job()
    service, made = Service(), account("$URL")
    with giving(scope):
        gcs(service, data="x", destination="gs://store/a", auth={**made, "endpoint_url": "$URL"})
    assert scope.holds_secret(TOKEN)
