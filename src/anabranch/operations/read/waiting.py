"""What an unfinished run waits for, as programs and people are told it.

The kernel says who can move what as a verb with its target; here that becomes the words of a
command line, which JSON carries too. A surface with buttons goes by the verb and not by the words.
"""

from __future__ import annotations

from msgspec.structs import asdict

from anabranch.kernel.explain import Mover, Unfinished, UnfinishedFields


class Waiting(UnfinishedFields[str], frozen=True, omit_defaults=True):
    """One unfinished thing and what it takes to move it."""


def worded(one: Unfinished) -> Waiting:
    return Waiting(**asdict(one) | {"movers": tuple(map(in_words, one.movers))})


def is_command(mover: Mover) -> bool:
    """Are its words a line for a shell?"""
    return mover.verb not in ("", "wake")


def in_words(mover: Mover) -> str:
    match mover.verb:
        case "":
            return mover.target
        case "wake":
            return "a wake-up"
        case "worker":
            return f"anabranch worker --pool {mover.target}"
        case "patch":
            return f"anabranch patch {mover.target} KEY=VALUE"
        case "decide":
            gate, *answer = mover.arguments
            options = [f"--{word.replace('_', '-')}" for word in answer]
            return " ".join(["anabranch decide", mover.target, gate, *options])
        case "resume":
            return f"anabranch resume {mover.target}"
