"""Expression languages: what stands in guards and templates, compiled once, run often.

PURE: no clock, no chance, no I/O. They see names and values, and know nothing of definitions.
"""
