"""Outputs of `remember`, opened by the clients that people use.

usage: run.py [--write] [--jobs N] [--list] [GROUP ...]

Each group is a module of `cases/` and runs in a process of its own, for at most LIMIT seconds (default 1800). A case makes
a small seeded checkpoint with the real library, runs the command on it, opens the output with the real client as it is,
and compares weights bit for bit and logits. `--write` replaces the tables of these groups in docs/clients.md.

Models that transformers and diffusers open are opened once more, with their files read through the Python package.

ANAMNESIS names the command, WORK the folder to work in, LLAMA_CPP a folder with llama.cpp's convert_hf_to_gguf.py. The package is
found as any other.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback

import package
import table
from table import Row

GROUPS = ["bitsandbytes", "conv1d", "torchao", "hqq", "quanto", "llmcompressor", "auto_round", "gptqmodel", "mlx", "by_hand",
          "pytorch", "training", "peft", "diffusers", "accelerate", "sentence_transformers", "silent", "readers", "llama_cpp", "gguf_types", "gguf_models"]
ENVIRONMENT = dict(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TOKENIZERS_PARALLELISM="false",
                   CUDA_VISIBLE_DEVICES="", PYTHONWARNINGS="ignore")


def child(group, out):
    """Runs the cases of a group; writes a line of JSON for each, after one about the group."""
    import importlib

    import case

    module = importlib.import_module(f"cases.{group}")
    about = dict(title=module.__doc__.strip().splitlines()[0].rstrip("."), made=module.MADE, reference=module.REFERENCE,
                 client=module.CLIENT, cases=[[each.name, " ".join(each.options)] for each in module.CASES])
    work = pathlib.Path(out).parent / "work"
    with open(out, "w") as file:
        def write(value):
            print(json.dumps(value), file=file, flush=True)

        write(about)
        for each in module.CASES:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            print(f"\n== {each.name} {' '.join(each.options)}", flush=True)
            try:
                row = case.run(group, each, work)
            except (Exception, SystemExit) as error:
                traceback.print_exc()
                row = Row(group, each.name, " ".join(each.options), "failed", note=case.first_line(error))
            write(dataclasses.asdict(row))
        shutil.rmtree(work, ignore_errors=True)


def run_group(group, work, limit):
    """The subject of a group, its rows and its seconds; rows that its process did not reach have failed."""
    began = time.monotonic()
    folder = work / group
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "log.txt"
    command = [sys.executable, os.path.abspath(__file__), "--child", group, str(folder / "rows.jsonl")]
    with open(log, "w") as file:
        # a session of its own, so that the limit ends the programs that it has started too
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder,
                                   env={**os.environ, **ENVIRONMENT})
        try:
            status = f"ended with status {process.wait(limit)}"
        except subprocess.TimeoutExpired:
            status = f"stopped after {limit} s"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    written = folder / "rows.jsonl"
    lines = [json.loads(line) for line in written.read_text().splitlines()] if written.exists() else []
    if not lines:
        last = (log.read_text().strip().splitlines() or [""])[-1]
        row = Row(group, "all", result="failed", note=f"the process {status}: {last[:200]}")
        return dict(title=group, made="", reference="", client=""), [row], time.monotonic() - began
    about, *rows = lines
    rows = [Row(**row) for row in rows]
    rows += [Row(group, name, options, "failed", note=f"not reached: the process {status}")
             for name, options in about["cases"][len(rows):]]
    return about, rows, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--write", action="store_true", help="replace the tables of docs/clients.md")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="groups that run at a time")
    parser.add_argument("--list", action="store_true", help="print the groups")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(*args.child)
    if args.list:
        return print("\n".join(GROUPS))
    unknown = [group for group in args.groups if group not in GROUPS]
    if unknown:
        sys.exit(f"unknown group {unknown[0]}: {', '.join(GROUPS)}")
    work = pathlib.Path(os.environ["WORK"]).resolve()
    groups = []
    limit = int(os.environ.get("LIMIT", "1800"))
    wanted = args.groups or GROUPS
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        # from the last one on, which takes longest; printed in order
        running = {group: pool.submit(run_group, group, work, limit) for group in reversed(wanted)}
        for group in wanted:
            about, rows, seconds = running[group].result()
            groups.append((about, rows))
            print(*map(table.line, rows), f"        {group}: {seconds:.0f} s", sep="\n", flush=True)
    rows = [row for _, rows in groups for row in rows]
    print("\nlogs:", work)
    for label, result in (("failed", "failed"), ("the client differs", "client")):
        named = [f"{row.group}: {row.case}" for row in rows if row.result == result]
        if named:
            print(f"{label}: {'; '.join(named)}")
    if args.write:
        table.write(groups)
    print(package.summary(work / group / "log.txt" for group in wanted))
    print(table.closing(rows))
    sys.exit(any(row.result == "failed" for row in rows))


if __name__ == "__main__":
    main()
