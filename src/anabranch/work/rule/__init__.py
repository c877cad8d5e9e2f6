"""The kind `rule`: an XRC-137 rule document carried out."""
