"""The client: one protocol core under two faces, asyncio (`connection`) and blocking (`sync`).

`core` and `handshake` hold what both faces share and do no I/O; `records` and `url` are what a program sees.
"""
