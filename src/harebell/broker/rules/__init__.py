"""What operators set for virtual hosts and users: policies, parameters, limits."""
