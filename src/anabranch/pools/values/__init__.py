"""Large values on their way to a cluster and back: with the job, or in a folder both sides see.

The dispatcher's side packs jobs (`packing`); the side of the work is in `pools/entry`. The third
place for values, the server, is asked as any worker asks it (`pools/remote`).
"""
