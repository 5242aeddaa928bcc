"""Logins and permissions: users, passwords, SASL, access to virtual hosts."""

from harebell.broker.auth.access import Access
from harebell.broker.auth.login import Applicant, Login, Logins
from harebell.broker.auth.users import Users

__all__ = ["Access", "Applicant", "Login", "Logins", "Users"]
