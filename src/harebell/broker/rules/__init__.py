"""The settings that operators make for virtual hosts and users: policies, parameters, limits."""
