"""The ledger of a node: accounts, movements between them, and holds on money.

Amounts are whole minor units of one unit, ORC. `book` changes it, inside the block of who decides.
"""
