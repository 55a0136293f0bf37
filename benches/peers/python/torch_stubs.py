"""Makes torch's Linux wheel importable without its GPU libraries, which are four times its size.

For each missing library this builds a stub that exports the required symbols. Every stub function returns 35 (CUDA's "driver
too old"), and CPU code calls none of them. Needs gcc and readelf; does nothing if no library is missing.
"""
import collections
import glob
import importlib.util
import os
import re
import subprocess
import tempfile

SYSTEM = re.compile(
    r"^(libpthread|libm|libdl|libc|librt|libstdc\+\+|libgcc_s|ld-linux-.*|libgomp|libgfortran|libquadmath|libz|libcuda|libutil)\.so"
)


def read(flag, library):
    out = subprocess.run(["readelf", flag, "-W", library], capture_output=True, text=True, check=True)
    return out.stdout.splitlines()


def wanted(libraries):
    """The missing libraries, the versioned symbols of each, and the symbols that name no library."""
    there = {os.path.basename(library) for library in libraries}
    missing, owners, versioned = set(), {}, collections.defaultdict(set)
    defined, loose = set(), set()
    for library in libraries:
        for line in read("-d", library):
            for name in re.findall(r"\(NEEDED\).*\[(.*?)\]", line):
                if name not in there and not SYSTEM.match(name):
                    missing.add(name)
        owner = None
        for line in read("-V", library):
            if found := re.search(r"File: (\S+)", line):
                owner = found.group(1)
            if (found := re.search(r"Name: (\S+)\s+Flags", line)) and owner:
                owners.setdefault((library, found.group(1)), owner)
                versioned[owner].add((None, found.group(1)))
    for library in libraries:
        for words in map(str.split, read("--dyn-syms", library)):
            if len(words) < 8 or not words[0].endswith(":"):
                continue
            name = words[7]
            if words[6] != "UND":
                defined.add(name.split("@")[0])
            elif "@" in name:
                symbol, version = name.split("@", 1)
                version = version.lstrip("@")
                owner = owners.get((library, version))
                if owner in missing:
                    versioned[owner].add((symbol, version))
            elif words[4] != "WEAK":
                loose.add(name)
    plain = re.compile(r"^(?!_ITM|__gmon|__cxa|Py|_Py)[A-Za-z_]\w*$")
    return missing, versioned, sorted(name for name in loose - defined if plain.match(name))


def build(path, name, symbols, versions, more):
    functions = sorted({symbol for symbol, _ in symbols} | set(more))
    code = "\n".join(f"int {function}(void) {{ return 35; }}" for function in functions)
    with tempfile.TemporaryDirectory() as folder:
        source, script = os.path.join(folder, "stub.c"), os.path.join(folder, "stub.map")
        with open(source, "w") as file:
            file.write(code + "\n")
        with open(script, "w") as file:
            for version in versions:
                mine = " ".join(symbol + ";" for symbol, of in sorted(symbols) if of == version)
                file.write(f"{version} {{ global: {mine} }};\n")
        command = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", path, source, f"-Wl,-soname,{name}"]
        if versions:
            command.append(f"-Wl,--version-script,{script}")
        subprocess.run(command, check=True)


def main():
    folder = os.path.join(os.path.dirname(importlib.util.find_spec("torch").origin), "lib")
    missing, versioned, loose = wanted(sorted(glob.glob(folder + "/*.so*")))
    for nth, name in enumerate(sorted(missing)):
        symbols = {(symbol, version) for symbol, version in versioned[name] if symbol}
        versions = sorted({version for _, version in versioned[name]})
        build(os.path.join(folder, name), name, symbols, versions, loose if nth == 0 else [])


main()
