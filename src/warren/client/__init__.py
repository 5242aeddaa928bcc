"""The client: one protocol core under two faces, asyncio (`connection`, `channel`) and blocking (`sync`).

`core` and `handshake` hold what both faces share and do no I/O; `records` and `url` are what a program sees.

The asyncio face comes back when its connection is lost; the rules stand at the top of `connection`. Its parts:
`recovery` (the choices), `events` (what is told), `dial`, `topology` and `replay` (what was declared), `lasting` and
`subscription` (channels and consumers over many wire channels), `deliveries` and `publishes` (what is unsettled, under
public numbers), `harness` (for tests).

Above the channels stand `producer`, `reader`, `workers` (with `settling`, `retry`, `dead_letters`), `rpc` and `pools`,
all made by `faces`, which is the base of Connection; `codec` gives their bodies a type.
"""
