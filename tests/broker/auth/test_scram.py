"""SCRAM-SHA-256: the RFC's own example, a whole login, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from harebell.broker.auth.scram import Keys, ScramServer, made_up_keys, make_keys, parse_keys


def keys_of(password: bytes, salt: bytes, iterations: int) -> Keys:
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return Keys(iterations, salt, stored, hmac.digest(salted, b"Server Key", "sha256"))


def last_message(password: str, first_bare: str, server_first: bytes, header: str = "n,,") -> bytes:
    """What a client answers, by RFC 5802."""
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    bare = f"c={base64.b64encode(header.encode()).decode()},r={fields['r']}"
    auth = f"{first_bare},{server_first.decode()},{bare}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), auth, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


def test_the_example_of_rfc_7677() -> None:
    server = ScramServer(nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.begin(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == "user"
    keys = keys_of(b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    assert server.challenge(keys) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof = b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.finish(last + proof) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_keys_are_written_and_read() -> None:
    keys = make_keys("secret")
    assert parse_keys(str(keys)) == keys
    assert "secret" not in str(keys)
    assert str(keys)[20:] not in repr(keys)


@pytest.mark.parametrize(
    "text", ["", "SCRAM-SHA-1$4096:c2FsdA==$AA==:AA==", "SCRAM-SHA-256$4096:c2FsdA==$AA==:AA==", "x$y$z"]
)
def test_what_are_no_keys(text: str) -> None:
    with pytest.raises(ValueError):
        parse_keys(text)


@pytest.mark.parametrize(
    "password, sent", [("secret", "secret"), ("a\u00adb", "ab"), ("\u2168", "IX"), ("a\u00a0b", "a b")]
)
def test_passwords_are_prepared(password: str, sent: str) -> None:
    """SASLprep's examples (RFC 4013): the client sends the prepared form."""
    server = ScramServer()
    server.begin(b"n,,n=u,r=abc")
    first = server.challenge(make_keys(password))
    assert server.finish(last_message(sent, "n=u,r=abc", first)).startswith(b"v=")


def test_a_wrong_password_and_nobody_look_the_same() -> None:
    for keys in (make_keys("secret"), made_up_keys(b"key", "nobody", ())):
        server = ScramServer()
        server.begin(b"n,,n=u,r=abc")
        first = server.challenge(keys)
        with pytest.raises(ValueError, match="wrong password"):
            server.finish(last_message("wrong", "n=u,r=abc", first))
    nobody = made_up_keys(b"key", "nobody", (4096,))
    assert nobody.salt == made_up_keys(b"key", "nobody", (4096,)).salt != made_up_keys(b"key", "x", (4096,)).salt
    made_up = {made_up_keys(b"key", f"nobody {number}", (4096, 600_000)).iterations for number in range(50)}
    assert made_up == {4096, 600_000}, "as those of users"


def test_a_name_with_a_comma() -> None:
    assert ScramServer().begin(b"n,,n=a=2Cb=3Dc,r=abc") == "a,b=c"
    assert ScramServer().begin(b"y,a=me,n=me,r=abc") == "me"


@pytest.mark.parametrize("first", [
    b"", b"n", b"n,,", b"n,,n=u", b"n,,n=u,r=", b"p=tls-unique,,n=u,r=abc", b"n,a=other,n=u,r=abc", b"n,,m=x,n=u,r=abc",
    b"n,,n=a=b,r=abc", b"\xff", b"n,x,n=u,r=abc",
])  # fmt: skip
def test_first_messages_that_are_refused(first: bytes) -> None:
    with pytest.raises(ValueError):
        ScramServer().begin(first)


@pytest.mark.parametrize("change", [
    lambda last: last.replace(b"c=biws", b"c=eSws"), lambda last: last.replace(b"r=abc", b"r=abd"),
    lambda last: last[:-1], lambda last: last.replace(b"p=", b"p=AAAA"), lambda last: b"", lambda last: b"\xff",
    lambda last: last.replace(b",p=", b",x=1,p="),
])  # fmt: skip
def test_last_messages_that_are_refused(change: object) -> None:
    server = ScramServer()
    server.begin(b"n,,n=u,r=abc")
    last = last_message("secret", "n=u,r=abc", server.challenge(make_keys("secret")))
    assert callable(change)
    with pytest.raises(ValueError):
        server.finish(change(last))
