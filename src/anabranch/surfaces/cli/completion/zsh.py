"""The script for zsh (5 and newer): to be sourced, or a file `_anabranch` in a folder of fpath."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.surfaces.cli.completion.grammar import Command, Option, Slot

_HEAD = """\
#compdef anabranch
# Completion of anabranch for zsh, made by `anabranch completion zsh`.
# For every new shell, add to ~/.zshrc behind compinit:  source <(anabranch completion zsh)

_anabranch_values() { # what the store knows, each with a word about it
    local kind=$argv[-1]
    local -a found place
    (( ${+opt_args[--store]} )) && place=(--store ${(Q)opt_args[--store]})
    found=(${(f)"$($_anabranch_program completion --values $kind $place 2>/dev/null </dev/null)"})
    found=(${${found//:/\\\\:}//$'\\t'/:})
    _describe -t $kind $kind found
}
"""
_FOOT = """\
if [[ $funcstack[1] == _anabranch ]]; then
    _anabranch "$@"
else
    compdef _anabranch anabranch
fi
"""
_ALTERNATIVES = {
    "files": "'files:file:_files'",
    "folders": "'folders:folder:_files -/'",
    "runs": "'runs:run:_anabranch_values runs'",
    "names": "'names:name:_anabranch_values names'",
    "paths": "'paths:path:_anabranch_values paths'",
}


def script(root: Command) -> str:
    """The whole script."""
    functions = [line for each in root.every() for line in (*_function(each), "")]
    return "\n".join((_HEAD, *_slots(root), "", *functions, _FOOT))


def _slots(root: Command) -> Iterator[str]:
    """A function for each set of kinds that some value may be of."""
    slots = {_called(slot): slot for each in root.every() for slot in _slots_of(each) if slot.kinds}
    for name, slot in slots.items():
        parts = " ".join(_ALTERNATIVES[kind] for kind in slot.kinds)
        yield f"{name}() {{ _alternative {parts} }}"


def _slots_of(command: Command) -> Iterator[Slot]:
    yield from command.places
    yield from (option.slot for option in command.options if option.slot is not None)


def _function(command: Command) -> Iterator[str]:
    """One function a command: its options and places, or its options and children."""
    specs = [_option(option) for option in command.options]
    yield f"{_name(command)}() {{"
    if not command.path:
        yield "    local _anabranch_program=$words[1]"
    if not command.children:
        yield f"    {_arguments([*specs, *_places(command)])}"
        yield "}"
        return
    yield "    local curcontext=$curcontext state line ret=1"
    yield "    typeset -A opt_args"
    yield f"    {_arguments(['-C', *specs, _quote('1: :->first'), _quote('*:: :->rest')])} && ret=0"
    yield "    case $state in"
    yield "        first)"
    listed = " ".join(
        _quote(f"{child.path[-1]}:{_plain(child.about)}") for child in command.children
    )
    yield f"            local -a children=({listed})"
    yield "            _describe -t commands command children && ret=0 ;;"
    yield "        rest)"
    yield "            case $words[1] in"
    for child in command.children:
        yield f"                {child.path[-1]}) {_name(child)} && ret=0 ;;"
    yield from ("            esac ;;", "    esac", "    return ret", "}")


def _arguments(specs: list[str]) -> str:
    return "_arguments -s " + " \\\n        ".join(specs)


def _name(command: Command) -> str:
    return "".join(("_anabranch", *(f"__{word.replace('-', '_')}" for word in command.path)))


def _option(option: Option) -> str:
    about = f"[{_plain(option.about)}]"
    front = "*" if option.repeats else f"({' '.join((option.name, *option.others))})"
    if option.slot is None:
        return _quote(f"{front}{option.name}{about}")
    equals = "=" if option.name.startswith("--") else "+"
    return _quote(f"{front}{option.name}{equals}{about}:{_value(option.slot)}")


def _places(command: Command) -> Iterator[str]:
    for number, slot in enumerate(command.places, 1):
        last = command.goes_on and number == len(command.places)
        yield _quote(f"{'*' if last else number}:{_value(slot)}")


def _value(slot: Slot) -> str:
    label = _plain(slot.label)
    if slot.words:
        return f"{label}:({' '.join(slot.words)})"
    return f"{label}:{_called(slot) if slot.kinds else ' '}"


def _called(slot: Slot) -> str:
    return "_anabranch_slot_" + "_".join(slot.kinds)


def _plain(text: str) -> str:
    """Within a spec, brackets and colons are marks."""
    text = " ".join(text.split())
    for mark in ("\\", ":", "[", "]"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
