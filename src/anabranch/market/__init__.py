"""The world that Arca workflows live in: identities, capability passports, the directory.

It finds and vouches for participants; asking them is the work of `work/participants`.
"""
