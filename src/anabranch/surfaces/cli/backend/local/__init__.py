"""The backend over a store of this machine, one module for each topic of the port.

Nothing here talks to a server. Its counterpart stands under the same name in `http`.
"""
