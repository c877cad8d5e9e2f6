"""Completion for shells: the grammar of the command line as a table, and a script for each shell.

A script holds the whole grammar, so pressing Tab starts no process, except where the values are
those of a store. Nothing here parses what a person typed for another purpose than to complete it.
"""
