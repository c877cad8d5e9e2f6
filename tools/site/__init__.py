"""The documentation as a site: the pages of `docs/`, and the reference made from the code."""
