"""Messages between nodes: signed envelopes, sessions, and the transports that carry them.

Who sent a message is known by its signature alone. What a message means is for the handlers of
other parts and for modules; nothing here decides about offers, orders or artifacts.
"""
