# One variant of the section `remote`: arguments are the variant, the case, the server's URL, milliseconds before each answer and
# bytes per second of a connection. Prints nanoseconds, what must be equal in all variants, and what the server counted.
import asyncio, json, os, struct, sys, time, urllib.request
from concurrent.futures import ThreadPoolExecutor

name, case, server, latency, rate = sys.argv[1:6]
os.environ.update(
    AWS_ACCESS_KEY_ID="id", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1", AWS_REGION="us-east-1",
    AWS_ENDPOINT_URL=server, AWS_EC2_METADATA_DISABLED="true", RUNAI_STREAMER_S3_ENDPOINT=server,
    RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING="0", RUNAI_STREAMER_CONCURRENCY="16", RUNAI_STREAMER_LOG_LEVEL="ERROR",
    HF_ENDPOINT=server, HF_HOME="/nonexistent", HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_PROGRESS_BARS="1",
)
for token in ("HF_TOKEN", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
    os.environ.pop(token, None)

PIECE, PARALLEL = 8 << 20, 16
INDEX = "model.safetensors.index.json"


def shards_of(index):
    return sorted(set(json.loads(index)["weight_map"].values()))


def tensors_of(header):
    return len(header) - ("__metadata__" in header)


def safetensors_header(file):
    (length,) = struct.unpack("<Q", file.read(8))
    return tensors_of(json.loads(file.read(length)))


def npz_arrays(file):  # names, dtypes and shapes, as numpy would read them
    import zipfile
    from numpy.lib import format
    count = 0
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            with archive.open(member) as array:
                version = format.read_magic(array)
                (format.read_array_header_1_0 if version == (1, 0) else format.read_array_header_2_0)(array)
                count += 1
    return count


def gguf_tensors(file):  # walks over the metadata to the number of tensors and their descriptions
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    read = lambda form: struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))

    def value(kind):
        if kind == 8:
            file.read(read("Q")[0])
        elif kind == 9:
            inner, length = read("IQ")
            if inner in sizes:
                file.read(sizes[inner] * length)
            else:
                for _ in range(length):
                    value(inner)
        else:
            file.read(sizes[kind])

    file.read(8)
    tensors, keys = read("QQ")
    for _ in range(keys):
        file.read(read("Q")[0])
        value(read("I")[0])
    for _ in range(tensors):
        file.read(read("Q")[0])
        (dimensions,) = read("I")
        read("Q" * dimensions + "IQ")
    return tensors


def pth_tensors(file):  # there are as many persistent ids as tensors here: none share a storage
    import pickletools, zipfile
    with zipfile.ZipFile(file) as archive:
        (pickle,) = [member for member in archive.namelist() if member.endswith("data.pkl")]
        return sum(op.name == "BINPERSID" for op, _, _ in pickletools.genops(archive.read(pickle)))


def list_file(open_file, file):
    if case.startswith("shards"):
        with open_file(f"{case}/{INDEX}") as index:
            shards = shards_of(index.read())
        return sum(list_file_of(open_file, f"{case}/{shard}", safetensors_header) for shard in shards)
    kinds = {"safetensors": safetensors_header, "npz": npz_arrays, "gguf": gguf_tensors, "pth": pth_tensors}
    return list_file_of(open_file, file, kinds[file.rsplit(".")[-1]])


def list_file_of(open_file, file, read):
    with open_file(file) as opened:
        return read(opened)


def data_sum(pieces):  # the sum of bytes, in any order
    import numpy
    return sum(int(numpy.frombuffer(piece, "u1").sum(dtype="u8")) for piece in pieces) % 2**48


# `work()` is timed, `result(work())` is not: the number of tensors, or the sum of the loaded bytes
result = lambda found: found
if name.startswith("ours"):
    import anamnesis
    if case.startswith("load"):
        import numpy
        def work():
            return anamnesis.load(f"s3://bucket/{case}/", "np")
        result = lambda tensors: data_sum(tensor.reshape(-1).view("u1") for tensor in tensors.values())
    else:
        place = {"hub": "hf://owner/", "bucket": "s3://bucket/", "web": f"{server}/bucket/"}[name.split(", ")[1]]
        work = lambda: len(anamnesis.open(place + case + ("/" if place.startswith("s3") and "." not in case else "")))
elif name == "hf-mem":
    import hf_mem, httpx2
    build = httpx2.AsyncClient.build_request  # the hub's host is part of its code
    httpx2.AsyncClient.build_request = lambda self, method, url, **more: build(
        self, method, str(url).replace("https://huggingface.co", server), **more
    )
    work = lambda: asyncio.run(sys.modules["hf_mem.run"].arun(f"owner/{case}"))
    # it sums parameters and shows no tensors
    result = lambda found: None
elif name == "huggingface_hub":
    import huggingface_hub
    work = lambda: huggingface_hub.get_safetensors_metadata(f"owner/{case}")
    result = lambda found: sum(len(file.tensors) for file in found.files_metadata.values())
elif name == "fsspec":
    import aiohttp, fsspec, numpy
    files = fsspec.filesystem("http")
    work = lambda: list_file(lambda path: files.open(f"{server}/bucket/{path}"), case)
elif name == "s3fs":
    import numpy, s3fs
    files = s3fs.S3FileSystem(endpoint_url=server)
    if case.startswith("load"):
        def work():
            paths, starts, ends = [], [], []
            for path in files.ls(f"bucket/{case}"):
                if path.endswith(".safetensors"):
                    size = files.info(path)["size"]
                    for start in range(0, size, PIECE):
                        paths.append(path), starts.append(start), ends.append(min(start + PIECE, size))
            return list(zip(starts, files.cat_ranges(paths, starts, ends, batch_size=PARALLEL)))
    else:
        work = lambda: list_file(lambda path: files.open(f"bucket/{path}"), case)
elif name == "obstore":
    import obstore, obstore.store
    bucket = obstore.store.S3Store("bucket", endpoint=server, client_options={"allow_http": True})
    GUESS = 128 << 10
    async def header(path):
        first = bytes(await obstore.get_range_async(bucket, path, start=0, end=GUESS))
        (length,) = struct.unpack("<Q", first[:8])
        if length + 8 > len(first):
            first += bytes(await obstore.get_range_async(bucket, path, start=len(first), end=8 + length))
        return tensors_of(json.loads(first[8 : 8 + length]))
    async def shards():
        index = await obstore.get_async(bucket, f"{case}/{INDEX}")
        found = shards_of(bytes(await index.bytes_async()))
        return sum(await asyncio.gather(*(header(f"{case}/{shard}") for shard in found)))
    def load():
        pieces = [
            (meta["path"], start, min(start + PIECE, meta["size"]))
            for meta in obstore.list(bucket, f"{case}/").collect()
            if meta["path"].endswith(".safetensors")
            for start in range(0, meta["size"], PIECE)
        ]
        get = lambda piece: (piece[1], obstore.get_range(bucket, piece[0], start=piece[1], end=piece[2]))
        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(get, pieces))
    if case.startswith("load"):
        work = load
    elif case.startswith("shards"):
        work = lambda: asyncio.run(shards())
    else:
        work = lambda: asyncio.run(header(case))
elif name == "run:ai model streamer":
    import numpy, torch
    from runai_model_streamer import SafetensorsStreamer
    def work():
        paths = [f"s3://bucket/{case}/model-{i:05}-of-00006.safetensors" for i in range(1, 7)]
        with SafetensorsStreamer() as streamer:
            streamer.stream_files(paths)
            return [tensor for _, tensor in streamer.get_tensors()]
    result = lambda tensors: data_sum(tensor.reshape(-1).view(torch.uint8).numpy() for tensor in tensors)
elif name.startswith("limit"):
    # the bytes of all shards over as many connections as the peers have, into memory that nothing else needs
    import socket
    host, port = server.removeprefix("http://").split(":")
    def connection(jobs):
        with socket.create_connection((host, int(port))) as stream:
            buffer = memoryview(bytearray(1 << 20))
            for path, start, end in jobs:
                stream.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nRange: bytes={start}-{end - 1}\r\n\r\n".encode())
                head = b""
                while b"\r\n\r\n" not in head:
                    head += stream.recv(1)
                left = end - start
                while left:
                    left -= stream.recv_into(buffer, min(left, len(buffer)))
    def work():
        jobs = []
        for i in range(1, 7):
            path = f"/bucket/{case}/model-{i:05}-of-00006.safetensors"
            request = urllib.request.Request(server + path, method="HEAD")
            size = int(urllib.request.urlopen(request).headers["Content-Length"])
            jobs += [(path, start, min(start + PIECE, size)) for start in range(0, size, PIECE)]
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(connection, [jobs[i::PARALLEL] for i in range(PARALLEL)]))
    result = lambda _: None
else:
    raise SystemExit(f"unknown variant {name}")

if name in ("obstore", "s3fs") and case.startswith("load"):
    # without the headers, which the first piece of a file begins with
    def result(pieces):
        skipped = []
        for start, piece in pieces:
            piece = memoryview(piece)
            skipped.append(piece[8 + struct.unpack("<Q", piece[:8])[0] :] if start == 0 else piece)
        return data_sum(skipped)


def control(path):
    return urllib.request.urlopen(server + path).read().decode()


for _ in range(2 if "repeated" in name else 1):
    control(f"/__reset?latency={latency}&rate={rate}")
    began = time.perf_counter_ns()
    found = work()
    took = time.perf_counter_ns() - began
    counts = control("/__counts")
    equal = result(found)
    del found
print(took, "-" if equal is None else equal, counts, flush=True)
os._exit(0)  # the runtime of obstore sometimes aborts when the interpreter ends
