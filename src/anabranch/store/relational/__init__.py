"""What the stores on a relational database share: the ports carried out with named statements.

Statements, types and connections of one database live beside its store, never here.
"""
