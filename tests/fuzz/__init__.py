"""Whatever comes from outside is read or refused: by mutation, from messages that are right.

`doors` names every reader of bytes from outside with messages that it takes and the errors it may
raise; `bend` makes others of them; `grow` looks for messages that reach new lines of the readers,
and keeps them in `messages/`, from which the tests begin. `make fuzz` runs it by hand.
"""
