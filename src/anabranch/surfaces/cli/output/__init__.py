"""What a terminal shows: tables, the live view, log lines, exit codes.

Nothing here asks a store or a server.
"""
