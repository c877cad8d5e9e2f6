"""Another user of the operating system for inline work.

Only a process that may change its user can give one: root does, in a container say. The work gets
the user, the group and the further groups of that user, and its home. Files and processes of the
engine, and what `/proc` tells of it, are then as far away as those of any stranger.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from anabranch.errors import InputError

_SETTING = "inline_user (ANABRANCH_INLINE_USER, --inline-user)"
_WORKER = str(Path(__file__).parents[1] / "python" / "worker.py")
#: Each says a word when it runs, and stays until its input ends.
_SHELL = ["/bin/sh", "-c", "echo here; read -r _"]
_PYTHON = "import sys; open(sys.argv[1]).close(); print('here', flush=True); sys.stdin.read()"
_PROBE_SECONDS = 30.0


class OsUser(msgspec.Struct, frozen=True):
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str = "/bin/sh"

    @classmethod
    def named(cls, name: str, *, python: bool = True) -> OsUser:
        """The user of this name or number, after a try that processes of it can be started here.

        Without `python` it need not be able to run Python.
        """
        import pwd  # not on every platform

        try:
            found = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
        except (KeyError, OverflowError):
            raise _refused(f"there is no user {name!r} on this machine") from None
        if found.pw_uid == 0:
            raise _refused("root may do everything: name a user with fewer rights")
        if found.pw_uid == os.geteuid():
            raise _refused(f"{name} is the user of this very process: name another one")
        if os.geteuid() != 0 and _keeps_capabilities():
            raise _refused(
                "the ambient capabilities of this process would go on to inline work: start it as "
                "root, or give the capabilities to the program file"
            )
        made = cls(
            found.pw_name,
            found.pw_uid,
            found.pw_gid,
            tuple(os.getgrouplist(found.pw_name, found.pw_gid)),
            found.pw_dir or "/",
            found.pw_shell or "/bin/sh",
        )
        made._try(_SHELL)
        if python and not made._try([sys.executable, "-P", "-S", "-c", _PYTHON, _WORKER]):
            raise _refused(
                f"{name} cannot run {sys.executable} with {_WORKER}: install them where it can, or "
                "switch Python off (--no-inline python)"
            )
        return made

    def at_home(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment with the home of this user; folders of the engine's user are left out."""
        kept = {k: v for k, v in environment.items() if k not in ("TMPDIR", "TEMP", "TMP")}
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return {**kept, **own}

    def lend(self, *descriptors: int) -> None:
        """Lets a command open its own output again (`> /dev/stderr`)."""
        for each in descriptors:
            with suppress(OSError):
                os.fchown(each, self.uid, self.gid)

    def _try(self, argv: list[str]) -> bool:
        """Starts it as this user and signals it, so that a start fails and no run does. Whether it
        came so far as to say its word."""
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                cwd="/",
                user=self.uid,
                group=self.gid,
                extra_groups=self.groups,
                start_new_session=True,
            )
        except OSError as error:
            if error.errno == errno.EACCES:
                return False
            raise _refused(self._why_not(error)) from None
        try:
            assert process.stdout is not None
            heard = process.stdout.readline()
            os.killpg(process.pid, 0)
        except PermissionError:
            why = f"this process could not stop what runs as {self.name}: it lacks CAP_KILL"
            raise _refused(why) from None
        finally:
            process.communicate(timeout=_PROBE_SECONDS)
        return heard.strip() == b"here"

    def _why_not(self, error: OSError) -> str:
        if error.errno == errno.EPERM:
            me = f"this process (user {os.geteuid()}) may not become {self.name}"
            return f"{me}: start it as root, or leave the setting out"
        return f"no process of {self.name} can be started: {error.strerror}"


def _refused(why: str) -> InputError:
    return InputError(f"{_SETTING}: {why}", code="inline_user")


def _keeps_capabilities() -> bool:
    """Ambient capabilities survive a change of the user, and would allow to change back."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return False
    words = [line.split()[1] for line in lines if line.startswith("CapAmb:")]
    return any(int(word, 16) for word in words)
