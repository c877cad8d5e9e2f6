"""The verb `offers`: the catalog of offers that a buyer keeps, in its file.

The file may be in use by the Arca of a node that runs; only `sync` asks that node.
"""
