"""Who asks: passwords, sessions of consoles, tags."""
