"""Who may do what, and the record of it: tokens, credentials, the key of a store, the audit log.

No secret leaves it but to the work that names it.
"""
