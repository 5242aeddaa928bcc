"""The parts of a client's connection that do not depend on its dialect."""
