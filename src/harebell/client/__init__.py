"""The client: asyncio (`connection`, `channel`), and the same without `await`, for threads (`blocking`).

`core` and `handshake` do no I/O; `wire` brings them together with asyncio; `records` and `url` are what a program sees.

The client comes back when its connection is lost; the rules stand at the top of `connection`. Its parts:
`recovery` (the choices), `events` and `notices` (what is told), `dial`, `topology` and `replay` (what was declared),
`lasting` and `subscription` (channels and consumers over many wire channels), `deliveries` and `publishes` (what is
unsettled, under public numbers), `statistics`, `harness` (for tests). What comes back with a channel is in
`middleware`, one feature a file, made of the hooks that programs have too.

Above the channels stand `producer` (with `pending`), `reader`, `workers` (with `settling`, `retry`, `dead_letters`),
`rpc` and `pools`, all made by `faces`, which is the base of Connection; `codec` gives their bodies a type.
"""
