"""The process that runs inline Python code: `python -P worker.py CHANNEL MEMORY LIMIT`.

Python compiles the file that it is started with anew each time. So all that the process does is in
`inline_server.py`, which is loaded from its bytecode, and here is only how.
"""

import os
import sys
import types


def _loaded_alone() -> types.ModuleType:
    """`inline_server`, imported without running the packages around it.

    Their `__init__` may import the whole engine. Stand-ins lead the import to the files and are
    taken away again, so that code which imports `anabranch` gets the real one.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    kinds = os.path.dirname(folder)
    work = os.path.dirname(kinds)
    packages = {
        "anabranch": os.path.dirname(work),
        "anabranch.work": work,
        "anabranch.work.values": os.path.join(work, "values"),
        "anabranch.work.kinds": kinds,
        "anabranch.work.kinds.python": folder,
    }
    for name, path in packages.items():
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [path]
    from anabranch.work.kinds.python import inline_server

    for name in [name for name in sys.modules if name.split(".")[0] == "anabranch"]:
        del sys.modules[name]
    return inline_server


if __name__ == "__main__":
    _loaded_alone().main()
