"""`anabranch demo`: the showcase and the small services it talks to.

It uses the command line as a person would.
"""
