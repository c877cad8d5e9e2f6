"""`run`, `resume`, `redrive`, `simulate` and `test`: a definition carried out, or tried.

What is said to a run that is under way is in `control`.
"""
