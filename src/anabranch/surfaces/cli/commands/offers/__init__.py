"""The verb `offers`: the catalog of offers that a buyer keeps, in its file.

It asks no node and no server; the file may be in use by the Arca of a node that runs.
"""
