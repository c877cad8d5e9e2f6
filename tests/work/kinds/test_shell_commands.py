"""A shell task runs a command, keeps what it wrote within bounds, and says how it ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.values import Answer, Fault
from anabranch.work.kind_options import ShellOptions
from anabranch.work.kinds.commands.shell import Shell

from ..support import fault_of, gone, open_descriptors, run, task, written


def sh(options: ShellOptions | None = None, /, **inputs: Any) -> Answer:
    return run(Shell(options).perform(task("shell", **inputs)))


def sh_fault(**inputs: Any) -> Fault:
    return fault_of(sh(**inputs))


def test_the_result_is_what_the_command_wrote() -> None:
    answer = sh(command="echo out; echo err >&2")
    assert answer.result == {"exit_code": 0, "stdout": "out\n", "stderr": "err\n"}


def test_commands_run_as_one_script_that_stops_at_the_first_failure() -> None:
    assert sh(cmds=["cd /", "word=here", "echo $word $PWD"]).result["stdout"] == "here /\n"
    fault = sh_fault(cmds=["echo one", "false", "echo two"])
    assert (fault.code, fault.details["stdout"]) == ("EXIT_1", "one\n")


def test_a_failure_says_status_and_last_words() -> None:
    fault = sh_fault(command="echo before; echo 'disk full' >&2; exit 3")
    assert (fault.kind, fault.code, fault.retryable) == ("shell", "EXIT_3", True)
    assert fault.message == "the command ended with exit status 3: disk full"
    assert fault.details == {"exit_code": 3, "stdout": "before\n", "stderr": "disk full\n"}


def test_a_signal_is_named() -> None:
    fault = sh_fault(command="kill -SEGV $$")
    assert (fault.code, fault.details["exit_code"]) == ("SIGNAL_11", -11)
    assert "SIGSEGV" in fault.message


def test_a_command_that_is_not_there_is_explained() -> None:
    assert "(command not found)" in sh_fault(command="no_such_command_here").message


def test_the_environment_tells_run_step_and_key() -> None:
    command = 'echo "$ANABRANCH_RUN $ANABRANCH_STEP $ANABRANCH_KEY $A $B ${C:-unset}"'
    answer = sh(command=command, env={"A": 1, "B": True, "C": None})
    assert answer.result["stdout"] == "run-1 ship run-1/job-1 1 true unset\n"


def test_shell_and_folder_can_be_chosen(tmp_path: Path) -> None:
    assert sh(command="pwd", cwd=str(tmp_path)).result["stdout"] == f"{tmp_path}\n"
    answer = sh(command="false | true; echo ${BASH_VERSION:+bash}", shell="bash")
    assert answer.result["stdout"] == "bash\n"
    assert sh(command="false | true", shell=["bash", "-eo", "pipefail"]).status == "error"


def test_there_is_nothing_to_read() -> None:
    assert sh(command="cat").result["stdout"] == ""


def test_more_output_than_is_kept_is_cut_and_said() -> None:
    options = ShellOptions(capture_bytes=1000)
    answer = sh(options, command="seq 1 100000; echo end; seq 1 10 >&2")
    assert len(answer.result["stdout"]) == 1000
    assert answer.result["stdout"].endswith("100000\nend\n")
    assert answer.result["stdout_truncated"] is True
    assert answer.result["stdout_bytes"] == 588_899
    assert "stderr_truncated" not in answer.result


def test_a_failure_shows_only_the_tail() -> None:
    details = sh_fault(command="seq 1 100000 >&2; exit 1").details
    assert len(details["stderr"]) == 4_000
    assert details["stderr_truncated"] is True


def test_bytes_that_are_no_text_do_not_hurt() -> None:
    assert sh(command=r"printf 'a\377b'").result["stdout"] == "a\ufffdb"


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    answer = sh(command=f"sleep 300 & echo $! > {path}; echo done")
    assert answer.result["stdout"] == "done\n"
    (pid,) = run(written(path))
    assert gone(pid)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "either command (text) or cmds"),
        ({"command": "a", "cmds": ["b"]}, "either command (text) or cmds"),
        ({"cmds": "ls"}, "cmds must be a list"),
        ({"cmds": []}, "cmds must be a list"),
        ({"cmds": ["ls", 1]}, "cmds[1] must be text"),
        ({"command": "ls", "cwd": "/no/such/folder"}, "there is no folder /no/such/folder"),
        ({"command": "ls", "env": {"A": []}}, "env.A must be text or a number"),
        ({"command": "ls", "timeout": 0}, "timeout must be a time above zero"),
        ({"command": "ls", "shell": "/no/such/shell"}, "could not be started"),
        ({"command": "a\0b"}, "could not be started"),
    ],
)
def test_bad_inputs_are_named(inputs: dict[str, Any], words: str) -> None:
    fault = sh_fault(**inputs)
    assert (fault.kind, fault.retryable) == ("config", False)
    assert words in fault.message


def test_no_descriptor_is_left_open() -> None:
    sh(command="true")
    before = open_descriptors()
    sh(command="sleep 300 & true")
    sh(command="sleep 300", timeout=0.1)
    sh(command="true", shell="/no/such/shell")
    assert open_descriptors() == before
