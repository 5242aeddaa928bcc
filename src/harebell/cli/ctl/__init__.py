"""`harebellctl`: the commands that scripts call on rabbitmqctl and rabbitmq-diagnostics, over the HTTP API."""
