"""The backend over the HTTP API of a server, one module for each topic of the port.

Nothing here opens a store. Its counterpart stands under the same name in `local`.
"""
