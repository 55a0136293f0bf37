"""Archives whose bytes depend on their content alone: sorted, owned by root, with one time."""

import gzip
import io
import lzma
import os
import tarfile
from pathlib import Path

# the time of the commit, which .ci/dist sets
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])


def tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    """A tar file of regular files with their modes, and of the folders above them."""
    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted([*folders, *files]):
            entry = tarfile.TarInfo(name)
            entry.mtime = EPOCH
            entry.uname = entry.gname = "root"
            if name in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
            else:
                content, entry.mode = files[name]
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def gz(content: bytes) -> bytes:
    """Compressed, without a name and a time."""
    return gzip.compress(content, 9, mtime=0)


def xz(content: bytes) -> bytes:
    return lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)


def read_tree(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their relative names."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
