"""SHA256SUMS over the files of a folder, and a signature over it by ssh-keygen, which is on the machines of users already.

docs/operations/verify-a-release.md says how it is verified, and why by this tool.
"""

import hashlib
import subprocess
from pathlib import Path

from devtools.build_tools import BuildToolFailed, find

SUMS = "SHA256SUMS"
#: Who signs, in the words of an allowed_signers file, and what for: a signature for another purpose is none of a release.
IDENTITY = "checkpointed-writes"
NAMESPACE = "checkpointed-writes-release"
HOW_TO_MAKE_A_KEY = "ssh-keygen -t ed25519 -C checkpointed-writes-release -f release_key"


def write_sums(folder: Path) -> Path:
    """In the format of sha256sum, sorted by name."""
    lines = []
    for path in sorted(path for path in folder.iterdir() if path.name != SUMS):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    sums = folder / SUMS
    sums.write_text("".join(lines))
    return sums


def sign(key: Path, data: bytes) -> bytes:
    """Asks for the passphrase of the key on the terminal, if it has one and no ssh-agent holds it."""
    command = [find("ssh-keygen"), "-Y", "sign", "-f", str(key), "-n", NAMESPACE]
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode != 0:
        raise BuildToolFailed(
            f"KEY={key} cannot sign: {done.stderr.decode(errors='replace').strip()}\n"
            f"Give a private key of SSH, or the public one of a key that your ssh-agent holds. To make one: {HOW_TO_MAKE_A_KEY}"
        )
    return done.stdout


def allowed_signer(key: Path) -> str | None:
    """The line by which users know the key; None where its public half does not lie beside it."""
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    if not public.is_file():
        return None
    kind, material, *_ = public.read_text().split()
    return f'{IDENTITY} namespaces="{NAMESPACE}" {kind} {material}'
