"""`python -m anabranch`, and where the command `anabranch` begins.

Whatever only asks for the version loads nothing else. Everybody else loads hundreds of modules at
once, none of which is garbage: the collector would look through all of them again and again.
"""

from __future__ import annotations

import gc
import sys

from anabranch.version import __version__


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print(f"anabranch {__version__}")
        return
    gc.disable()  # until the verb is loaded
    from anabranch.surfaces.cli.main import main as begin

    try:
        begin()
    finally:
        gc.freeze()  # the interpreter looks through all of it once more before it ends


if __name__ == "__main__":
    main()
