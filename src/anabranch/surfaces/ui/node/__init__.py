"""The pages of a node: what its operator sees and does in a browser.

`mount(app, node, tokens)` adds them to the application that serves the endpoints of the node. What
they show and change goes through the node's own table, in the name of the operator.
"""

from anabranch.surfaces.ui.node.routes import mount

__all__ = ["mount"]
