"""`harebell top`: a broker's queues and connections, live on a terminal."""
