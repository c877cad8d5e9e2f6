"""A catalog of offers: what is admitted, how far it is trusted, and how it is found again.

`relays` checks what a peer has sent, `rules` decides whether it replaces what is known, `listing`
filters and shows offers, `messages` is the form in which nodes exchange them: all of this the host
and modules share. `catalog` keeps offers in a SQLite file.
"""
