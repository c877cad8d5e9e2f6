"""One module a page: it asks the node, puts together what the template shows, and sends forms on.

No page reads the state of a node itself, and none decides what may be done.
"""
