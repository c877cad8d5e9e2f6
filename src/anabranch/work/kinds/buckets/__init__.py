"""Objects in buckets: who may reach them, clients that keep to limits, and the kind `gcs`.

Scripts, artifacts and transfers read and write `s3://` and `gs://` through here.
"""
