"""`story`: the marketplace at work, with real nodes on this machine.

Here are its grammar and what it prints at the end; the stories themselves are in
`surfaces/stories`.
"""
