"""Pools on Dask: the adapter in the engine, and the little that Dask's own processes run.

backend.py      tickets and their ends: the port `pools/backend.py`
connection.py   one connection to a scheduler, for as long as it holds
scheduler.py    runs in the scheduler: no job is repeated because its worker died
worker.py       runs in the workers: our entry, its progress, and how it is told to stop

Nothing here knows what a job is. `scheduler.py` and `worker.py` import next to nothing of ours: the
processes of a cluster load them first.
"""
