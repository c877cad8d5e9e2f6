"""A container task runs an image through podman or docker, and leaves no container behind.

Most tests use a small program in the place of podman: it writes down how it was called and runs
what would be run in the container. The last one uses what this machine has.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.values import Answer, Fault
from anabranch.work.kind_options import ContainerOptions
from anabranch.work.kinds.commands.container import PROGRAMS, Container
from anabranch.work.secrets.redaction import Redactor, giving

from ..support import fault_of, run, task

PROGRAM = """#!/usr/bin/env python3
import json, os, subprocess, sys
here = os.path.dirname(__file__)
with open(os.path.join(here, "calls"), "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[1:]
if words[0] == "rm":
    sys.exit(0)
env, entry, script = {}, [], ""
at = 1
while words[at].startswith("--"):
    option = words[at]
    if option == "--rm":
        at += 1
        continue
    value = words[at + 1]
    if option == "--env-file":
        with open(value, newline="") as file:
            env = dict(line.split("=", 1) for line in file.read().split("\\n") if line)
        others = oct(os.stat(os.path.dirname(value)).st_mode & 0o77)
        with open(os.path.join(here, "variables"), "w") as found:
            json.dump({"path": value, "others": others, "client": dict(os.environ)}, found)
    if option == "--entrypoint":
        entry = [value]
    if option == "--volume":
        script = value.split(":")[0]
    at += 2
image, *rest = words[at:]
if image == "no/such:image":
    print("Error: no/such:image: image not known", file=sys.stderr)
    sys.exit(125)
run = [script if word == "/workspace/script.sh" else word for word in [*entry, *rest]]
with open(os.path.join(here, "pid"), "w") as pid:
    pid.write(str(os.getpid()))
sys.exit(subprocess.call(run or ["echo", "by itself"], env={"PATH": os.environ["PATH"], **env}))
"""


class Fake:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "podman"
        self.path.write_text(PROGRAM)
        self.path.chmod(0o755)

    def performer(self) -> Container:
        return Container(ContainerOptions(command=str(self.path)))

    def run(self, **inputs: Any) -> Answer:
        return run(self.performer().perform(task("container", **inputs)))

    def refused(self, **inputs: Any) -> Fault:
        return fault_of(self.run(**inputs))

    @property
    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    @property
    def found(self) -> dict[str, Any]:
        """What it found of the variables: their file, and its own environment."""
        return dict(json.loads((self.folder / "variables").read_text()))

    @property
    def of_the_client(self) -> dict[str, str]:
        return dict(self.found["client"])


@pytest.fixture
def podman(tmp_path: Path) -> Fake:
    return Fake(tmp_path)


def inline(code: str) -> dict[str, Any]:
    return {"source": {"type": "inline", "code": code}}


def test_a_script_runs_in_the_image_with_its_variables(podman: Fake) -> None:
    answer = podman.run(
        runtime={"image": "alpine:3", "env": {"UNIT": 42}, "args": ["one", 2]},
        script=inline('echo "$UNIT $NAME $1 $2"; echo careful >&2'),
        env={"NAME": "Ada", "UNIT": 1},
    )
    assert answer.result == {
        "status": "success",
        "image": "alpine:3",
        "exit_code": 0,
        "stdout": "42 Ada one 2\n",
        "stderr": "careful\n",
        "logs": "42 Ada one 2\n",
    }
    (call,) = podman.calls
    assert call[:2] == ["run", "--rm"]
    assert call[-5:] == ["/bin/bash", "alpine:3", "/workspace/script.sh", "one", "2"]
    assert "anabranch.run=run-1" in call


def test_a_command_of_its_own_and_none_at_all(podman: Fake) -> None:
    runtime = {"image": "alpine", "command": ["/bin/sh", "-c", "echo $ANABRANCH_KEY"]}
    assert podman.run(runtime=runtime).result["logs"] == "run-1/job-1\n"
    assert podman.run(runtime={"image": "alpine"}).result["logs"] == "by itself\n"


def test_values_of_variables_are_not_on_the_command_line(podman: Fake) -> None:
    scope = Redactor.of_job()
    scope.learn("hunter2-hunter2")
    env = {"TOKEN": "word-of-the-house", "HOME": "hunter2-hunter2"}
    with giving(scope):
        answer = podman.run(
            runtime={"image": "alpine", "command": ["/bin/sh", "-c", "echo $HOME"], "env": env}
        )
    (call,) = podman.calls
    assert answer.result["stdout"] == "hunter2-hunter2\n"
    assert not any(word in " ".join(call) for word in ("word-of-the-house", "hunter2"))


#: What podman, docker and the loader of every program go by.
OF_THE_CLIENT = (
    *("PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "XDG_CONFIG_HOME", "TMPDIR"),
    *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH"),
    *("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINER_HOST", "REGISTRY_AUTH_FILE"),
)


def test_no_variable_of_a_task_reaches_the_command_that_runs_containers(
    podman: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/operator.sock")
    monkeypatch.setenv("CONTAINERS_CONF", "/etc/operator.conf")
    env = {name: f"/evil/{name}" for name in OF_THE_CLIENT}
    command = ["/bin/bash", "-c", 'IFS=,; for n in $*; do echo "${!n}"; done', "x"]
    runtime = {"image": "alpine", "command": command, "args": [",".join(OF_THE_CLIENT)]}
    answer = podman.run(runtime=runtime, env={**env, "LD_PRELOAD": ""})
    given = [f"/evil/{name}" if name != "LD_PRELOAD" else "" for name in OF_THE_CLIENT]
    assert answer.result["stdout"].split("\n")[:-1] == given  # as it is in the container
    client = podman.of_the_client
    assert not [name for name, text in client.items() if "/evil/" in text]
    ours = [name for name in client if name.startswith("ANABRANCH_")]
    assert ours == ["ANABRANCH_PROCESS"]  # by which what it leaves behind is found
    assert client["DOCKER_HOST"] == "unix:///run/operator.sock"
    assert client["CONTAINERS_CONF"] == "/etc/operator.conf"


def test_variables_are_in_a_file_for_nobody_else_and_gone_afterwards(podman: Fake) -> None:
    podman.run(runtime={"image": "alpine", "env": {"TOKEN": "word-of-the-house"}})
    found = podman.found
    assert found["others"] == "0o0"
    assert not Path(found["path"]).parent.exists()


@pytest.mark.parametrize("text", ["a=b", " # not a remark ", '\'"$HOME"`x`\\n', "żółw", ""])
def test_a_value_arrives_as_it_is(podman: Fake, text: str) -> None:
    command = ["/bin/sh", "-c", 'printf %s "$A"']
    runtime = {"image": "alpine", "command": command, "env": {"A": text}}
    assert podman.run(runtime=runtime).result["stdout"] == text


def test_a_failure_has_the_kind_of_its_exit_status(podman: Fake) -> None:
    fault = podman.refused(runtime={"image": "alpine"}, script=inline("echo no >&2; exit 3"))
    assert (fault.kind, fault.code, fault.retryable) == ("container", "EXIT_3", True)
    assert fault.message == "the container ended with exit status 3: no"


def test_an_image_that_is_not_there_is_told_from_a_command_that_fails(podman: Fake) -> None:
    fault = podman.refused(runtime={"image": "no/such:image"})
    assert (fault.kind, fault.code) == ("container", "EXIT_125")
    assert "podman could not run the image no/such:image: Error" in fault.message


def test_a_container_that_is_out_of_time_is_removed(podman: Fake) -> None:
    runtime = {"image": "alpine", "timeoutSeconds": 3}
    fault = podman.refused(runtime=runtime, script=inline("sleep 600"))
    assert (fault.kind, fault.code) == ("timeout", "TIMEOUT")
    *began, removed = podman.calls  # on a busy machine time may be up before it says that it begins
    assert removed[:2] == ["rm", "--force"]
    assert [one[one.index("--name") + 1] for one in began] in ([], removed[2:])


def test_a_container_whose_task_is_cancelled_is_removed(podman: Fake) -> None:
    async def scenario() -> None:
        job = task("container", runtime={"image": "alpine"}, script=inline("sleep 600"))
        work = asyncio.ensure_future(podman.performer().perform(job))
        while not (podman.folder / "pid").exists():
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    run(scenario())
    assert [call[0] for call in podman.calls] == ["run", "rm"]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "runtime.image must be text"),
        ({"runtime": {"image": "--privileged"}}, "must be the name of an image"),
        ({"runtime": {"image": "a b"}}, "must be the name of an image"),
        ({"runtime": {"image": "a", "env": {"A=B": 1}}}, "cannot be the name of a variable"),
        ({"runtime": {"image": "a", "env": {"A": "1\n2"}}}, "env.A has several lines"),
        ({"runtime": {"image": "a"}, "env": {"A": "1\r"}}, "env.A has several lines"),
        ({"runtime": {"image": "a", "env": {"A": "1\0"}}}, "env.A"),
        ({"runtime": {"image": "a", "env": {"A": "1" * 70_000}}}, "env.A is longer than"),
        ({"runtime": {"image": "a", "timeoutSeconds": -1}}, "runtime.timeoutSeconds"),
        ({"runtime": {"image": "a"}, "script": "/no/such/script"}, "/no/such/script"),
    ],
)
def test_what_cannot_be_run_says_why(podman: Fake, inputs: dict[str, Any], said: str) -> None:
    fault = podman.refused(**inputs)
    assert (fault.kind, fault.retryable) == ("config", False)
    assert said in fault.message


def test_without_podman_and_docker_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fault = fault_of(run(Container().perform(task(runtime={"image": "alpine"}))))
    assert (fault.kind, fault.code) == ("config", "NO_CONTAINER_COMMAND")
    assert "container_command" in fault.message


def usable() -> str:
    """The command of this machine that has an image to run, or nothing."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            continue
        listing = [program, "images", "--format", "{{.Repository}}:{{.Tag}}"]
        found = subprocess.run(listing, capture_output=True, text=True, timeout=60, check=False)
        images = [line for line in found.stdout.split() if "<none>" not in line]
        if found.returncode == 0 and images:
            return f"{program} {images[0]}"
    return ""


@pytest.mark.slow
def test_a_real_container_runs_and_is_gone() -> None:
    words = usable().split()
    if not words:
        pytest.skip("neither podman nor docker works here with an image that is already there")
    program, image = words
    performer = Container(ContainerOptions(command=program))
    runtime = {"image": image, "command": ["/bin/sh", "-c", "echo $WORD"], "env": {"WORD": "in"}}
    answer = run(performer.perform(task(runtime=runtime)))
    assert answer.result["logs"] == "in\n"
    listing = [program, "ps", "--all", "--quiet", "--filter", "label=anabranch.run=run-1"]
    assert subprocess.run(listing, capture_output=True, text=True, check=True).stdout == ""
