"""The commands that administer a broker, running or started on its data folder: requests to it, one noun a file."""
