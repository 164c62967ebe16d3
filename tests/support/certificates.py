"""Certificates for tests with TLS."""

from __future__ import annotations

import dataclasses
import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclasses.dataclass(frozen=True)
class Identity:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def write(self, directory: Path, name: str) -> None:
        (directory / f"{name}.crt").write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        (directory / f"{name}.key").write_bytes(self.key_pem(serialization.NoEncryption()))

    def key_pem(self, encryption: serialization.KeySerializationEncryption) -> bytes:
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def issue(
    name: str,
    issuer: Identity | None = None,
    *,
    host: str = "localhost",
    organization: str = "",
    until: dt.timedelta = dt.timedelta(days=1),
) -> Identity:
    """A CA if nobody issues it, else a certificate for ``host`` or a client. It ends ``until`` after now.

    Kubernetes takes ``name`` for a user, and ``organization`` for the user's group.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = {NameOID.COMMON_NAME: name} | ({NameOID.ORGANIZATION_NAME: organization} if organization else {})
    subject = x509.Name([x509.NameAttribute(*one) for one in attributes.items()])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        alternative = x509.DNSName(host)
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + until)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
    )
    return Identity(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)
