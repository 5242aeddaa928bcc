"""Who may come in, and what they may do: users, passwords, SASL, permissions."""

from warren.broker.auth.access import Access
from warren.broker.auth.login import Applicant, Login, Logins
from warren.broker.auth.users import Users

__all__ = ["Access", "Applicant", "Login", "Logins", "Users"]
