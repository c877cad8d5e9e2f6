"""Where commands are carried out: at a store of this machine, or at a server over HTTP.

Both answer the same questions in the same shapes.
"""
