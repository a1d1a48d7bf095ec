"""Credentials of one run: a key and a certificate that only its own scheduler, workers and client trust."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Security


@dataclass(frozen=True)
class Credentials:
    """Files that hold a run's key and certificate.

    Parameters
    ----------
    authority, certificate, key : Path
        PEM files: whom to trust, who one is, and the proof of it.
    """

    authority: Path
    certificate: Path
    key: Path

    @property
    def options(self) -> list[str]:
        """Options of ``dask worker`` that name them."""
        return [
            "--tls-ca-file",
            str(self.authority),
            "--tls-cert",
            str(self.certificate),
            "--tls-key",
            str(self.key),
        ]


def hand_over(folder: Path) -> tuple[Security, Credentials]:
    """Make a run's credentials and leave them for its workers.

    Parameters
    ----------
    folder : Path
        A folder of mode 700 that the workers can read.

    Returns
    -------
    security : distributed.Security
        For the scheduler and the client.
    credentials : Credentials
        Files for the workers.
    """
    from distributed import Security

    security = Security.temporary()
    worker = security.get_tls_config_for_role("worker")
    files = {name: folder / f"{name}.pem" for name in ("ca_file", "cert", "key")}
    for name, path in files.items():
        _write_private(path, worker[name])
    return security, Credentials(files["ca_file"], files["cert"], files["key"])


def _write_private(path: Path, text: str) -> None:
    # Born private: a file that is made first and restricted then is open for a moment.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
