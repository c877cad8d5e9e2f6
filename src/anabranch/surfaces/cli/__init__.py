"""The command line: its grammar, its commands, where they are carried out and what they print.

It holds no rule: whatever a command decides is decided in `operations`.
"""
