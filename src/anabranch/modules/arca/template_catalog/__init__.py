"""Workflow templates of Arca: checked, kept by the host, shown to other nodes, taken from them.

`documents.py` looks at one template, `records.py` keeps them, `public.py` answers other nodes,
`remote.py` asks them. Nothing here signs: the host does, for templates alone.
"""
