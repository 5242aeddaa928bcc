"""Hashes: ours, RabbitMQ's, and those that are none."""

from __future__ import annotations

import itertools

import pytest

from harebell.broker.auth.passwords import RABBITMQ_SHA256, RABBITMQ_SHA512, SCRYPT, check_hash, hash_password, verify
from harebell.errors import InvalidArgument

MD5 = "rabbit_password_hashing_md5"


@pytest.mark.parametrize("algorithm", [SCRYPT, RABBITMQ_SHA256, RABBITMQ_SHA512])
def test_a_hash_fits_its_password_only(algorithm: str) -> None:
    made = hash_password("pässword", algorithm)
    check_hash(made, algorithm)
    assert verify("pässword".encode(), made, algorithm)
    assert not verify(b"password", made, algorithm)
    assert not verify(b"", made, algorithm)
    assert made != hash_password("pässword", algorithm), "the salt is another one"
    assert "ssword" not in made


def test_the_example_of_rabbitmqs_documentation() -> None:
    """Computing a hash by hand: the password is test12, the salt 908D C60A."""
    assert verify(b"test12", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", RABBITMQ_SHA256)


@pytest.mark.parametrize("algorithm", [SCRYPT, RABBITMQ_SHA256, RABBITMQ_SHA512])
def test_an_empty_hash_is_nobodys(algorithm: str) -> None:
    check_hash("", algorithm)
    assert not verify(b"", "", algorithm)
    assert not verify(b"x", "", algorithm)


def test_scrypt_says_its_cost() -> None:
    assert hash_password("x").startswith("ln=14,r=8,p=1$")
    cheap = "ln=4,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA==$0uDVLn9r3XdbKSRzLXZzRAZA0KzM9KjP6hL2f5x5Vxw="
    check_hash(cheap, SCRYPT)
    assert not verify(b"x", cheap, SCRYPT)


@pytest.mark.parametrize("password_hash, algorithm", [
    ("not base64!", RABBITMQ_SHA256), ("c2hvcnQ=", RABBITMQ_SHA256), ("c2hvcnQ=", RABBITMQ_SHA512),
    ("c2hvcnQ=", SCRYPT), ("ln=30,r=8,p=1$c2FsdA==$c2FsdHNhbHRzYWx0c2FsdA==", SCRYPT),
    ("ln=0,r=8,p=1$c2FsdA==$c2FsdHNhbHRzYWx0c2FsdA==", SCRYPT),
    ("ln=16,r=1,p=1$c2FsdA==$c2FsdHNhbHRzYWx0c2FsdA==", SCRYPT),
    ("ln=4,r=8,p=1$c2FsdA==$c2FsdA==", SCRYPT), ("", MD5), ("x", "plain"),
])  # fmt: skip
def test_what_cannot_be_verified_is_refused_and_not_shown(password_hash: str, algorithm: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_hash(password_hash, algorithm)
    assert not password_hash or password_hash not in str(refused.value).replace("password hash", "")


def test_every_cost_that_is_taken_can_be_verified() -> None:
    """A hash is taken where the library can compute it. The library refuses before it begins."""
    taken = 0
    for log_n, r, p in itertools.product(range(32), (0, 1, 2, 3, 8, 128, 500, 999), (0, 1, 2, 15, 16, 17, 99)):
        made = f"ln={log_n},r={r},p={p}$c2FsdA==$c2FsdHNhbHRzYWx0c2FsdA=="
        try:
            check_hash(made, SCRYPT)
        except InvalidArgument:
            continue
        taken += 1
        if r * p << log_n <= 1 << 14:
            assert not verify(b"x", made, SCRYPT)
        else:
            assert log_n < 16 * r, "RFC 7914"
            assert 128 * r * p + 128 * r * ((1 << log_n) + 2) <= 257 << 20, "the library's limit"
    assert taken > 100


def test_no_new_hash_of_md5_or_of_nothing() -> None:
    with pytest.raises(InvalidArgument, match="set the user's password anew"):
        hash_password("x", MD5)
    with pytest.raises(InvalidArgument, match="cannot be empty"):
        hash_password("")
