"""The script for fish (3.1 and newer)."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.surfaces.cli.completion.grammar import Command, Slot

_HEAD = """\
# Completion of anabranch for fish, made by `anabranch completion fish`.
# For every new shell:  anabranch completion fish > ~/.config/fish/completions/anabranch.fish

function __anabranch_fill # candidates for a slot: words, or what an @ stands before
    for part in $argv
        switch $part
            case @files
                __fish_complete_path (commandline -ct | string replace -r '^-[^=]*=' '')
            case @folders
                __fish_complete_directories (commandline -ct | string replace -r '^-[^=]*=' '')
            case '@*'
                set -l program (commandline -opc)[1]
                set -l kind (string sub -s 2 -- $part)
                $program completion --values $kind $__anabranch_place 2>/dev/null </dev/null
            case '*'
                echo -- $part
        end
    end
end

function __anabranch_complete
    set -g __anabranch_place
    set -l path ''
    set -l option ''
    set -l count 0
    set -l typed (commandline -opc)
    set -e typed[1]
    for word in $typed
        if test -n "$option"
            test "$option" = --store; and set -g __anabranch_place --store $word
            set option ''
        else if string match -q -- '-*=*' $word
            string match -q -- '--store=*' $word
            and set -g __anabranch_place --store (string replace -- --store= '' $word)
        else if string match -q -- '-*' $word
            __anabranch_slot "$path $word" >/dev/null; and set option $word
        else if __anabranch_spec "$path $word" >/dev/null
            set path "$path $word"
            set count 0
        else
            set count (math $count + 1)
        end
    end
    set -l current (commandline -ct)
    if test -n "$option"
        __anabranch_fill (__anabranch_slot "$path $option")
    else if string match -q -- '-*=*' $current
        set option (string replace -r '=.*' '' -- $current)
        for found in (__anabranch_fill (__anabranch_slot "$path $option"))
            echo -- $option=$found
        end
    else if string match -q -- '-*' $current
        __anabranch_spec "$path" options
    else
        test $count -eq 0; and __anabranch_spec "$path" children
        set -l places (__anabranch_spec "$path" places)
        set -l last (__anabranch_spec "$path" last)
        if test $count -lt (count $places)
            __anabranch_fill (string split ' ' -- $places[(math $count + 1)])
        else if test -n "$last"
            __anabranch_fill (string split ' ' -- $last)
        end
    end
end
"""
_FOOT = "complete -c anabranch -f -a '(__anabranch_complete)'\n"


def script(root: Command) -> str:
    """The whole script."""
    return "\n".join((_HEAD, *_specs(root), "", *_slots(root), "", _FOOT))


def _specs(root: Command) -> Iterator[str]:
    """What may stand behind a command, part by part, a line each; false where there is none."""
    yield "function __anabranch_spec"
    yield "    switch $argv[1]"
    for each in root.every():
        places = [_text(slot) or "@" for slot in each.places]
        parts = {
            "options": [_line(option.name, option.about) for option in each.options],
            "children": [_line(child.path[-1], child.about) for child in each.children],
            "places": [_quote(place) for place in places],
            "last": [_quote(place) for place in places[-1:]] if each.goes_on else [],
        }
        yield f"        case {_quote(_words(each))}"
        yield "            switch $argv[2]"
        for name, lines in parts.items():
            if lines:
                yield f"                case {name}"
                yield "                    printf '%s\\n' " + " \\\n                        ".join(
                    lines
                )
        yield "            end"
    yield from ("        case '*'", "            return 1", "    end", "    return 0", "end")


def _slots(root: Command) -> Iterator[str]:
    """What follows an option, a word a line; false for those that take no value."""
    found: dict[str, list[str]] = {}
    for each in root.every():
        for option in each.options:
            if option.slot is not None:
                where = _quote(f"{_words(each)} {option.name}")
                found.setdefault(_text(option.slot), []).append(where)
    yield "function __anabranch_slot"
    yield "    switch $argv[1]"
    for text, patterns in found.items():
        yield "        case " + " \\\n            ".join(patterns)
        if text:
            yield f"            string split ' ' -- {_quote(text)}"
    yield from ("        case '*'", "            return 1", "    end", "    return 0", "end")


def _words(command: Command) -> str:
    return "".join(f" {word}" for word in command.path)


def _text(slot: Slot) -> str:
    return " ".join((*slot.words, *(f"@{kind}" for kind in slot.kinds)))


def _line(word: str, about: str) -> str:
    return _quote(f"{word}\t{' '.join(about.split())}")


def _quote(text: str) -> str:
    """In single quotes fish knows two escapes, and a pattern of `case` keeps its stars there."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
