"""TLS of a listener: its options, the context made of them, and the user name in a client's certificate."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from harebell.errors import InvalidArgument

__all__ = ["Tls", "certificate_user"]

CertificateUser = Literal["distinguished_name", "common_name"]

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SHORT: Final = {
    "commonName": "CN", "countryName": "C", "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "streetAddress": "STREET", "domainComponent": "DC", "userId": "UID",
    "emailAddress": "EMAILADDRESS", "surname": "SN", "givenName": "GIVENNAME", "title": "TITLE",
    "serialNumber": "SERIALNUMBER", "initials": "INITIALS",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS options of a listener. Files are in PEM.

    certificate  the server's, with the chain that leads to its authority
    key          its key, without a passphrase; None when the certificate's file contains it
    ca           the authorities that sign client certificates
    verify       client certificates: "none" is requested, an "optional" one must be valid, or one is "required"
    minimum      the lowest version, "1.2" or "1.3"
    user         what EXTERNAL takes from a client's certificate: its "distinguished_name" (RFC 4514, such as
                 "CN=orders,O=Example"; RabbitMQ's default) or its "common_name"
    """

    certificate: str | Path
    key: str | Path | None = None
    ca: str | Path | None = None
    verify: Literal["none", "optional", "required"] = "none"
    minimum: Literal["1.2", "1.3"] = "1.2"
    user: CertificateUser = "distinguished_name"

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("verify", self.verify, tuple(_VERIFY)),
            ("minimum", self.minimum, tuple(_VERSIONS)),
            ("user", self.user, ("distinguished_name", "common_name")),
        ):
            if value not in allowed:
                raise InvalidArgument(f"TLS {name} '{value}' is not one of {', '.join(allowed)}")
        if self.verify != "none" and self.ca is None:
            raise InvalidArgument(f"TLS verify '{self.verify}' needs `ca`: the authorities of client certificates")

    def context(self) -> ssl.SSLContext:
        """A context made from the current files. Raises InvalidArgument when they cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.minimum]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.verify_mode = _VERIFY[self.verify]
        pair = f"certificate {self.certificate}" + (f" with key {self.key}" if self.key is not None else "")
        try:
            context.load_cert_chain(self.certificate, self.key, _no_passphrase)
            if self.ca is not None:
                pair = f"ca {self.ca}"
                context.load_verify_locations(self.ca)
        except OSError as error:  # ssl.SSLError is an OSError
            raise InvalidArgument(f"TLS {pair} cannot be used: {error.strerror or error}") from error
        return context


def _no_passphrase() -> str:
    raise InvalidArgument("the TLS key has a passphrase, which nobody can type here: take it off the file")


def certificate_user(certificate: Mapping[str, object] | None, source: CertificateUser) -> str | None:
    """The user in a verified certificate, as `ssl.SSLSocket.getpeercert()` returns it; None when there is none.

    A certificate with several common names has no user: any choice would be a guess.
    """
    if not certificate:
        return None
    subject = cast("Sequence[Sequence[tuple[str, str]]]", certificate.get("subject", ()))
    if source == "common_name":
        names = [value for rdn in subject for name, value in rdn if name == "commonName"]
        return names[0] if len(names) == 1 else None
    parts = ("+".join(f"{_SHORT.get(name, name)}={_escaped(value)}" for name, value in rdn) for rdn in subject)
    return ",".join(reversed(list(parts))) or None


def _escaped(value: str) -> str:
    """The value escaped for a distinguished name (RFC 4514, section 2.4)."""
    text = "".join(f"\\{each}" if each in ',+"\\<>;' else each for each in value).replace("\0", "\\00")
    if text.startswith(("#", " ")):
        text = "\\" + text
    return f"{text[:-1]}\\ " if value.endswith(" ") and len(value) > 1 else text
