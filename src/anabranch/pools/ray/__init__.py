"""Pools on Ray: the adapter in the engine, the process that is connected, and what Ray runs.

backend.py   the port `pools/backend.py`: its connections are in drivers (`pools/driver`)
driver.py    a process of its own, which does not outlive the cluster; only it connects to Ray
worker.py    runs on the cluster: a relay per connection, and the function that does a job

Nothing here knows what a job is, and nothing imports Ray into the process of an engine.
"""
