"""The world that Arca workflows live in: identities, capability passports, the directory."""
