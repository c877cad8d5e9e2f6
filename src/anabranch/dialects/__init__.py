"""From a text in one of the dialects to a net, with every problem at its line and column.

`source.py` reads YAML and JSON, `registry.py` recognises the dialect and compiles; each dialect
has a folder of its own. A new one gives the registry a function that compiles, and one line.
Dialects compile; they see no state of a run.
"""
