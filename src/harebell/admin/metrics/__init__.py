"""The metrics of a node, in the text form of Prometheus."""
