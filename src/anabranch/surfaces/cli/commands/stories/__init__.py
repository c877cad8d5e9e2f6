"""`story`: the marketplace at work, with real nodes on this machine.

The grammar and the verdict; a story itself is played by `surfaces/stories`.
"""
