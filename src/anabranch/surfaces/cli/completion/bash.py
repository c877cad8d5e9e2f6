"""The script for bash (3.2 and newer), which needs nothing but bash."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from anabranch.surfaces.cli.completion.grammar import Command, Slot

_HEAD = """\
# Completion of anabranch for bash, made by `anabranch completion bash`.
# For every new shell, add to ~/.bashrc:  source <(anabranch completion bash)

_anabranch_offer() { # those of the words on standard input that begin with what is typed
    local word
    while IFS= read -r word; do
        word=${word%%$'\\t'*}
        [[ $word == "$cur"* ]] && COMPREPLY+=("$word")
    done
}

_anabranch_fill() { # candidates for a slot
    local part
    for part in $slot; do
        case $part in
            @files) compopt -o filenames 2>/dev/null
                _anabranch_offer < <(compgen -f -- "$cur") ;;
            @folders) compopt -o filenames 2>/dev/null
                _anabranch_offer < <(compgen -d -- "$cur") ;;
            @*) _anabranch_offer < <("$program" completion --values "${part#@}" "${place[@]}" \\
                2>/dev/null </dev/null) ;;
            *) _anabranch_offer <<<"$part" ;;
        esac
    done
}

_anabranch() {
    local line=${COMP_LINE:0:COMP_POINT} program path='' option='' word cur
    local slot options children last
    local -a typed=() place=() places=()
    local -i i count=0
    COMPREPLY=()
    IFS=$' \\t\\n' read -r -a typed <<<"$line"
    [[ $line == *[[:space:]] ]] && typed+=('')
    program=${typed[0]}
    for ((i = 1; i < ${#typed[@]} - 1; i++)); do
        word=${typed[i]}
        if [[ -n $option ]]; then
            [[ $option == --store ]] && place=(--store "$word")
            option=''
        elif [[ $word == -*=* ]]; then
            [[ $word == --store=* ]] && place=(--store "${word#*=}")
        elif [[ $word == -* ]]; then
            _anabranch_slot "$path $word" && option=$word
        elif _anabranch_spec "$path $word"; then
            path="$path $word" count=0
        else
            count+=1
        fi
    done
    cur=${typed[${#typed[@]} - 1]}
    if [[ -n $option ]]; then
        _anabranch_slot "$path $option" && _anabranch_fill
        return
    fi
    if [[ $cur == -*=* ]]; then
        option=${cur%%=*} cur=${cur#*=}
        _anabranch_slot "$path $option" && _anabranch_fill
        return
    fi
    _anabranch_spec "$path" || return
    if [[ $cur == -* ]]; then
        slot=$options
    elif [[ -n $children ]]; then
        ((count == 0)) && slot=$children || return
    elif ((count < ${#places[@]})); then
        slot=${places[count]}
    elif [[ -n $last ]]; then
        slot=$last
    else
        return
    fi
    _anabranch_fill
}
"""
_FOOT = "complete -F _anabranch anabranch\n"


def script(root: Command) -> str:
    """The whole script."""
    return "\n".join((_HEAD, *_specs(root), "", *_slots(root), "", _FOOT))


def _specs(root: Command) -> Iterator[str]:
    """What may stand behind a command: options, children, and the slots of its places."""
    yield "_anabranch_spec() { # of a command: false where there is none of these words"
    yield "    last=''"
    yield "    case $1 in"
    for each in root.every():
        places = " ".join(shlex.quote(_text(slot)) for slot in each.places)
        yield f"        {_pattern(each)})"
        yield f"            options={_quoted(option.name for option in each.options)}"
        yield f"            children={_quoted(child.path[-1] for child in each.children)}"
        yield f"            places=({places})"
        if each.goes_on:
            yield "            last=${places[${#places[@]}-1]}"
        yield "            ;;"
    yield from ("        *) return 1 ;;", "    esac", "}")


def _quoted(words: Iterable[str]) -> str:
    return shlex.quote(" ".join(words))


def _slots(root: Command) -> Iterator[str]:
    """What follows an option, for those that take a value."""
    found: dict[str, list[str]] = {}
    for each in root.every():
        for option in each.options:
            if option.slot is not None:
                where = _pattern(each, option.name)
                found.setdefault(_text(option.slot), []).append(where)
    yield "_anabranch_slot() { # behind an option of a command: false where nothing follows"
    yield "    case $1 in"
    for text, patterns in found.items():
        yield "        " + " | \\\n            ".join(patterns) + ")"
        yield f"            slot={shlex.quote(text)} ;;"
    yield from ("        *) return 1 ;;", "    esac", "}")


def _pattern(command: Command, *more: str) -> str:
    """The words as `_anabranch` joins them: each with a blank before it."""
    return shlex.quote("".join(f" {word}" for word in (*command.path, *more)))


def _text(slot: Slot) -> str:
    """Words as they are, and what is looked up with a mark. A word that a shell would take for
    something else is not offered."""
    words = [word for word in slot.words if re.fullmatch(r"[\w./:+-]+", word)]
    return " ".join((*words, *(f"@{kind}" for kind in slot.kinds)))
