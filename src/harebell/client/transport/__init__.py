"""The way to the broker over asyncio: dialling, the protocol, deadlines."""
