"""The verbs that change runs: start, say, decide, redrive, purge, and one verb over many runs.

They go through the engine that owns the store; reading is in `operations/read`.
"""
