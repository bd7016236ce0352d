# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests."""
import subprocess

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def make_certificate(folder, name, kind=CURVE, owner="localhost"):
    """A self-signed certificate for localhost and its key, as NAME.pem and NAME.key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run([
        "openssl", "req", "-x509", *kind, "-noenc", "-keyout", key, "-out", certificate, "-days",
        "2", "-subj", f"/CN={owner}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                   check=True,
                   capture_output=True)
    key.chmod(0o600)
    return certificate, key
