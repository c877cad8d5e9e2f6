"""The verbs every surface shares. A surface parses, calls one verb, renders; it holds no rule."""
