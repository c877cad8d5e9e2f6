"""Collections for loops: described in a few bytes, cut into shards, read shard by shard.

    collections = Collections(payloads=…, performers=…)
    descriptor = await collections.describe({"jsonl": "orders.jsonl"})
    cuts = await collections.cut(descriptor, None, count=100, shards=8)
    shard = cuts.shards[0]
    items = await collections.items(descriptor, shard.first, shard.count, shard.cursor)

See `port.py` for what the words mean.
"""
