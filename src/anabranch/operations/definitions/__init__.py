"""From what a person hands in to a definition that can run: files, bundles, templates, the catalog,
its inputs, and what it needs that an engine may not have.

It compiles and compares; it starts nothing.
"""
