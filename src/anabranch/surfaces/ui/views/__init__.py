"""What pages show, made from read models: forms, filters, formatting, graphs.

Nothing here answers a request.
"""
