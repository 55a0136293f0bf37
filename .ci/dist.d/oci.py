"""A container image from scratch, as an OCI archive: oci.py CERTIFICATES EXTRAS VERSION REVISION OUT ARCHITECTURE=PROGRAM…

One layer for each architecture: the static program, the certificates that it trusts, and the licences. Its user is not root.
"""

import hashlib
import json
import sys
import time
from pathlib import Path

import archive

# the user `nonroot` of other images from scratch
USER = "65532:65532"
CREATED = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(archive.EPOCH))


def as_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Blobs:
    """The content-addressed files of the layout."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}

    def add(self, kind: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = (content, 0o644)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}


def image(blobs: Blobs, architecture: str, files: dict[str, tuple[bytes, int]], labels: dict[str, str]) -> dict[str, object]:
    layer = archive.tar(files)
    stored = blobs.add("layer.v1.tar+gzip", archive.gz(layer))
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": USER,
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/anamnesis"],
            "Cmd": ["--help"],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": CREATED, "created_by": ".ci/dist"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blobs.add("config.v1+json", as_json(config)),
        "layers": [stored],
        "annotations": labels,
    }
    return blobs.add("manifest.v1+json", as_json(manifest)) | {"platform": {"architecture": architecture, "os": "linux"}}


def main() -> None:
    certificates, extras, version, revision, out = sys.argv[1:6]
    labels = {
        "org.opencontainers.image.title": "anamnesis",
        "org.opencontainers.image.description": "List, dequantise and load tensor files",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": revision,
        "org.opencontainers.image.created": CREATED,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.source": "https://github.com/anamnesis-rs/anamnesis",
    }
    shared = {f"usr/share/doc/anamnesis/{path.name}": (path.read_bytes(), 0o644) for path in Path(extras).glob("LICENSE*")}
    # where the command's TLS looks first
    shared["etc/ssl/certs/ca-certificates.crt"] = (Path(certificates).read_bytes(), 0o644)
    blobs = Blobs()
    manifests = []
    for word in sys.argv[6:]:
        architecture, program = word.split("=", 1)
        files = shared | {"usr/bin/anamnesis": (Path(program).read_bytes(), 0o755)}
        manifests.append(image(blobs, architecture, files, labels))
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    name = {"org.opencontainers.image.ref.name": version}
    top = index | {"manifests": [blobs.add("index.v1+json", as_json(index)) | {"annotations": name}]}
    layout = {
        "oci-layout": (as_json({"imageLayoutVersion": "1.0.0"}), 0o644),
        "index.json": (as_json(top), 0o644),
    }
    Path(out).write_bytes(archive.tar(layout | blobs.files))
    print(top["manifests"][0]["digest"])


main()
