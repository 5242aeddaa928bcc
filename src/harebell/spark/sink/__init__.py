"""The sink: rows published with confirms."""
