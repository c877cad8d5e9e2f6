"""The kind `rule`: an XRC-137 rule document carried out.

How a document is read and typed is in `dialects/xrc137`; chains are reached by `work/chain`.
"""
