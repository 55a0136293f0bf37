"""The archive of a program: pack.py PROGRAM EXTRAS VERSION OUT."""

import sys
from pathlib import Path

import archive


def main() -> None:
    program, extras, version, out = (Path(word) for word in sys.argv[1:])
    folder = f"anamnesis-{version}"
    files = {f"{folder}/{name}": (content, 0o644) for name, content in archive.read_tree(extras).items()}
    files[f"{folder}/{program.name}"] = (program.read_bytes(), 0o755)
    out.write_bytes(archive.xz(archive.tar(files)))


main()
