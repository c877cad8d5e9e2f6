"""Older and later spellings of playbooks, turned into canonical v10 before anything is read.

What a key means is not decided here.
"""
