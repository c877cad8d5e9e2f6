"""What a play does with its script: answers, scripted participants and secrets, and real work where
it stays inside the process.

`play` itself is in `testing/play.py`.
"""
