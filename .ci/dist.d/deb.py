"""A Debian package of the static program: deb.py PROGRAM EXTRAS VERSION ARCHITECTURE OUT."""

import hashlib
import sys
from pathlib import Path

import archive

CONTROL = """\
Package: anamnesis
Version: {version}
Architecture: {architecture}
Maintainer: anamnesis contributors <noreply@anamnesis-rs.invalid>
Installed-Size: {kib}
Recommends: ca-certificates
Section: science
Priority: optional
Homepage: https://github.com/anamnesis-rs/anamnesis
Description: list, dequantise and load tensor files
 Reads safetensors, GGUF, NPY, NPZ and PyTorch files without running code of theirs,
 and compares, checks, converts and prefetches models. A static program.
"""

COMPLETIONS = {
    "anamnesis.bash": "usr/share/bash-completion/completions/anamnesis",
    "_anamnesis": "usr/share/zsh/vendor-completions/_anamnesis",
    "anamnesis.fish": "usr/share/fish/vendor_completions.d/anamnesis.fish",
}


def installed(program: Path, extras: Path) -> dict[str, tuple[bytes, int]]:
    files = {"usr/bin/anamnesis": (program.read_bytes(), 0o755)}
    licences = b""
    for name, content in archive.read_tree(extras).items():
        base = Path(name).name
        if name.startswith("man/"):
            files[f"usr/share/man/man1/{base}.gz"] = (archive.gz(content), 0o644)
        elif name.startswith("completions/"):
            files[COMPLETIONS[base]] = (content, 0o644)
        elif name.startswith("LICENSE"):
            licences += b"\n\n" + content
        else:
            files[f"usr/share/doc/anamnesis/{base}"] = (content, 0o644)
    copyright = b"Licensed under MIT or Apache-2.0, at your option." + licences
    return files | {"usr/share/doc/anamnesis/copyright": (copyright, 0o644)}


def ar(members: list[tuple[str, bytes]]) -> bytes:
    out = b"!<arch>\n"
    for name, content in members:
        out += f"{name:<16}{archive.EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return out


def main() -> None:
    program, extras, version, architecture, out = sys.argv[1:]
    files = installed(Path(program), Path(extras))
    kib = sum(-(-len(content) // 1024) for content, _ in files.values())
    control = CONTROL.format(version=version, architecture=architecture, kib=kib).encode()
    sums = "".join(f"{hashlib.md5(content).hexdigest()}  {name}\n" for name, (content, _) in sorted(files.items()))
    control = archive.tar({"control": (control, 0o644), "md5sums": (sums.encode(), 0o644)})
    data = archive.tar(files)
    members = [("debian-binary", b"2.0\n"), ("control.tar.xz", archive.xz(control)), ("data.tar.xz", archive.xz(data))]
    Path(out).write_bytes(ar(members))


main()
