"""A process like those of a cluster: it imports `worker_entry` and nothing else of ours.

Frames on its pipes: length, then a pickle. In: ("perform", number, blob) and ("stop", tickets).
Out: ("tell", number, verb, words) and ("done", number, outcome).
"""

from __future__ import annotations

import pickle
import struct
import sys
import threading
from typing import IO, Any

from anabranch.pools import worker_entry

_LENGTH = struct.Struct(">Q")
_writing = threading.Lock()


def read_frame(pipe: IO[bytes]) -> Any:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return pickle.loads(pipe.read(_LENGTH.unpack(head)[0]))  # of our own parent


def write_frame(pipe: IO[bytes], said: Any) -> None:
    content = pickle.dumps(said)
    with _writing:
        pipe.write(_LENGTH.pack(len(content)) + content)
        pipe.flush()


def main() -> None:
    out = sys.stdout.buffer
    sys.stdout = sys.stderr  # what work prints belongs elsewhere

    def perform(number: int, blob: bytes) -> None:
        def tell(verb: str, words: bytes) -> None:
            write_frame(out, ("tell", number, verb, words))

        write_frame(out, ("done", number, worker_entry.perform(blob, tell)))

    write_frame(out, ("modules", sorted(sys.modules)))
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        match frame:
            case "perform", number, blob:
                threading.Thread(target=perform, args=(number, blob), daemon=True).start()
            case "stop", tickets:
                worker_entry.stop(tickets)


if __name__ == "__main__":
    main()
