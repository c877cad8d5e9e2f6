"""Pools on Dask: the adapter in the engine, and the little that Dask's own processes run.

process.py      the port `pools/backend.py`: its connections are in drivers (`pools/driver`)
driver.py       a process of its own; only it connects to Dask
backend.py      there, tickets and their ends
connection.py   there, one connection to a scheduler, for as long as it holds
scheduler.py    runs in the scheduler: no job is repeated because its worker died
worker.py       runs in the workers: our entry, its progress, and how it is told to stop

Nothing here knows what a job is. `scheduler.py` and `worker.py` import next to nothing of ours: the
processes of a cluster load them first.
"""
