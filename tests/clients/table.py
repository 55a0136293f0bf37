"""The tables of a run: as text while it runs, and as Markdown in docs/clients.md."""
import dataclasses
import importlib.metadata
import pathlib
import subprocess
import time


DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/clients.md"
BEGIN, END = "<!-- clients: {} -->\n", "<!-- /clients -->\n"
CLIENTS = ["torch", "transformers", "safetensors", "accelerate", "bitsandbytes", "torchao", "hqq", "optimum-quanto",
           "compressed-tensors", "llmcompressor", "auto-round", "gptqmodel", "mlx", "mlx-lm", "peft", "diffusers", "sentence-transformers",
           "lightning", "gguf", "tokenizers"]
COLUMNS = {"case": "case", "options": "options", "weights": "weights", "logits": "logits",
           "own": "quantised model's own logits", "result": "result", "note": "remark"}
RESULTS = {"client": "**client differs**", "failed": "**FAILED**", "skipped": "SKIPPED"}


@dataclasses.dataclass
class Row:
    """The result of a case."""

    group: str
    case: str
    options: str = ""
    # passed, failed, skipped, or client: it differs, and the client is shown to be wrong
    result: str = "passed"
    weights: str = ""
    logits: str = ""
    own: str = ""
    note: str = ""


def line(row):
    """A row on one line of a terminal."""
    label = {"client": "CLIENT", "failed": "FAILED", "skipped": "SKIPPED"}.get(row.result, "ok")
    named = {"weights": row.weights, "logits": row.logits, "own logits": row.own}
    found = [f"{name} {value}" for name, value in named.items() if value] + [row.note]
    return f"{label:8}{row.group}: {' '.join(filter(None, [row.case, row.options]))}: {'; '.join(filter(None, found))}"


def closing(rows):
    """The counts; a row in which the client differs has passed if its proof did."""
    count = {result: sum(row.result == result for row in rows) for result in ("passed", "client", "failed", "skipped")}
    return f"{count['passed'] + count['client']} passed, {count['failed']} failed, {count['skipped']} skipped"


def markdown(about, rows):
    shown = [key for key in COLUMNS if any(getattr(row, key) for row in rows)]
    lines = [f"### {about['title']}", "",
             f"Made by {about['made']}. Reference: {about['reference']}. Opened by {about['client']}.", "",
             "| " + " | ".join(COLUMNS[key] for key in shown) + " |", "|---" * len(shown) + "|"]
    for row in rows:
        fields = dataclasses.asdict(row)
        fields["result"] = RESULTS.get(row.result, "equal")
        fields["options"] = row.options and f"`{row.options}`"
        lines.append("| " + " | ".join(fields[key].replace("|", "\\|").replace("\n", " ") for key in shown) + " |")
    return "\n".join(lines) + "\n"


def provenance():
    """Date and commit; the document itself is what a run writes."""
    def git(*args):
        root = DOCUMENT.parents[1]
        return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    changed = [name for name in git("diff", "--name-only", "HEAD").splitlines() if name != "docs/clients.md"]
    commit = git("rev-parse", "--short=10", "HEAD")
    return f"{time.strftime('%Y-%m-%d')}, commit {commit}{' with changes' if changed else ''}"


def versions():
    for name in CLIENTS:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"no {name}"


def write(groups):
    """Replaces the blocks of these groups in docs/clients.md, a list of what each is about and its rows."""
    run, text = provenance(), DOCUMENT.read_text()
    blocks = {"versions": f"{run}: {', '.join(versions())}.\n"}
    for about, rows in groups:
        blocks[rows[0].group] = markdown(about, rows) + f"\n{run}: {closing(rows)}.\n"
    for name, block in blocks.items():
        before, rest = text.split(BEGIN.format(name))
        _, after = rest.split(END, 1)
        text = before + BEGIN.format(name) + "\n" + block + "\n" + END + after
    DOCUMENT.write_text(text)
