"""`dator`: serve the module that sells and the roles that do its work, and ask one that runs.

What is asked goes to the node that hosts the module, at its local routes.
"""
