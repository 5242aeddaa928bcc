"""How requests come in and answers go out: the server, the application, bodies, paths."""
