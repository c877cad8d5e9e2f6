"""`anabranch arca`: the module that a node launches, and its runs at a node that hosts it."""
