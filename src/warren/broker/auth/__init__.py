"""Who may come in: users and SASL mechanisms."""

from warren.broker.auth.users import HASHING, Users, hash_password

__all__ = ["HASHING", "Users", "hash_password"]
