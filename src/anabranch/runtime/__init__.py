"""The engine: turns, commits, timers, recovery, and what leaves once it is durable.

It waits and writes, and leaves every decision to the kernel. Nothing outside reaches past
`engine.EngineLoop` into `core.Core`.
"""
