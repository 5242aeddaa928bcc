"""Who may come in: users and SASL mechanisms."""

from warren.broker.auth.users import Users

__all__ = ["Users"]
