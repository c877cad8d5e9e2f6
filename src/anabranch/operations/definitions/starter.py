"""A project to begin with: a definition, its tests, a Makefile, settings, and a schema for editors.

Its files are in the folder `starter`, with another ending where a tool of our own would take them
for its own.
"""

from __future__ import annotations

import json
from pathlib import Path

from anabranch.dialects.schema import schema_of
from anabranch.operations.definitions.new_files import NewFile, write_new

FOLDER = Path(__file__).with_name("starter")
SCHEMA = "schemas/noetl.json"
#: Each file of a new project, by what it is called here.
FILES = {
    "README.md": "README.md",
    "Makefile": "Makefile.txt",
    "anabranch.toml": "anabranch.toml.txt",
    ".gitignore": "gitignore.txt",
    "flows/order.yaml": "order.yaml",
    "tests/test_order.py": "test_order.py.txt",
}


def start_project(into: Path) -> list[Path]:
    """Write the files of a new project below this folder; returns their paths."""
    files = {name: NewFile((FOLDER / kept).read_bytes()) for name, kept in FILES.items()}
    schema = json.dumps(schema_of("noetl"), indent=1, ensure_ascii=False) + "\n"
    return write_new(into, {**files, SCHEMA: NewFile(schema.encode())})
