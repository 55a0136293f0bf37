"""The crates that are part of the command, as a CycloneDX document: sbom.py VERSION OUT < `cargo metadata`.

From the metadata of one target, whose graph is followed from the command along normal dependencies.
"""

import json
import os
import sys
import time
import tomllib
from pathlib import Path


def component(package: dict, checksums: dict[tuple[str, str], str]) -> dict:
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version}"
    out = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": "required"}
    if package.get("license"):
        # the form with a slash is older than the expressions of SPDX
        out["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if digest := checksums.get((name, version)):
        out["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return out


def main() -> None:
    version, out = sys.argv[1:]
    metadata = json.load(sys.stdin)
    lock = tomllib.loads(Path(metadata["workspace_root"], "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    [command] = [package["id"] for package in metadata["packages"] if any(t["name"] == "anamnesis" and "bin" in t["kind"] for t in package["targets"])]
    reached: dict[str, list[str]] = {}
    open_ids = [command]
    while open_ids:
        this = open_ids.pop()
        if this in reached:
            continue
        # `null` is a normal dependency; dependencies of builds and tests are not in the program
        normal = [d["pkg"] for d in nodes[this]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
        reached[this] = normal
        open_ids += normal
    components = {this: component(packages[this], checksums) for this in reached}
    refs = {this: made["bom-ref"] for this, made in components.items()}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))),
            "component": components[command] | {"type": "application", "name": "anamnesis", "version": version},
        },
        "components": sorted((made for this, made in components.items() if this != command), key=lambda made: made["bom-ref"]),
        "dependencies": sorted(
            ({"ref": refs[this], "dependsOn": sorted({refs[that] for that in normal})} for this, normal in reached.items()),
            key=lambda row: row["ref"],
        ),
    }
    Path(out).write_text(json.dumps(document, indent=1) + "\n")
    print(f"{len(components)} components")


main()
