"""Distributed transactions: branches that several sessions work in, and that are committed or rolled back whole."""
