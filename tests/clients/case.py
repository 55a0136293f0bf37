"""A case: how a checkpoint is made, what its values are by its own library, and which client opens the output."""
import dataclasses
import os
import pathlib
import subprocess
import typing

import models
import torch
from table import Row

# how the quantised model's own logits compare with the output's
EQUAL = "equal"
# the library multiplies otherwise: activations are quantised, or products scaled
NEAR = "near"


def transformers_client(out, source):
    return models.opened(models.load(out))


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    # writes the checkpoint into a folder: `models.Source`
    make: typing.Optional[typing.Callable] = None
    # the checkpoint as the library makes it: `models.State` of a source
    reference: typing.Optional[typing.Callable] = None
    # opens the output: `models.State` of an output folder and a source
    client: typing.Callable = transformers_client
    options: tuple = ()
    own: typing.Optional[str] = None
    # why the checkpoint cannot be made here; the case is skipped if that fails
    unavailable: str = ""
    # instead of a comparison: shows that the client is wrong, from an output folder and a source, and returns the proof
    proof: typing.Optional[typing.Callable] = None
    # instead of all of the above: fills the row of a case from a folder to work in
    check: typing.Optional[typing.Callable] = None


def remember(source, out, *options, into_file=False):
    """Runs the command; fails with its message. Nothing is copied, renamed or edited afterwards."""
    out = str(out) if into_file else f"{out}/"
    done = attempt(source, out, *options)
    if done.returncode:
        raise AssertionError(f"remember: {done.stderr.strip()}")
    return pathlib.Path(out)


def attempt(source, out, *options):
    command = [os.environ["ANAMNESIS"], "remember", str(source), "-o", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    print("$", *command, "->", done.returncode, "\n" + done.stdout + done.stderr, flush=True)
    return done


def run(group, case, work):
    row = Row(group, case.name, " ".join(case.options))
    if case.check:
        case.check(row, work)
        return row
    try:
        source = case.make(work)
    except Exception as error:
        if not case.unavailable:
            raise
        row.result, row.note = "skipped", f"{case.unavailable} ({first_line(error)})"
        return row
    out = remember(source.path, work / "out", *case.options)
    if case.proof:
        row.result, row.note = "client", case.proof(out, source)
        return row
    found, expected = case.client(out, source), case.reference(source)
    row.weights = compare_weights(found.weights, expected.weights)
    if expected.logits is not None:
        row.logits = compare_logits(found.logits, expected.logits)
    if case.own:
        row.own = compare_own(case.own, found.logits, models.logits(source.model))
    return row


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def difference(name, found, expected):
    """How two tensors differ, if they do in any bit."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        shown = [f"{t.dtype} {list(t.shape)}" for t in (found, expected)]
        return f"{name} is {shown[0]} instead of {shown[1]}"
    if torch.equal(bits(found), bits(expected)):
        return None
    most = (found.float() - expected.float()).abs().max().item()
    return f"{name} differs by up to {most:.3g}"


def differences(found, expected):
    """Names of tensors that one side lacks, and how the others differ."""
    wrong = [f"{name} is missing" for name in expected.keys() - found.keys()]
    wrong += [f"{name} is unexpected" for name in found.keys() - expected.keys()]
    for name in sorted(expected.keys() & found.keys()):
        wrong += filter(None, [difference(name, found[name], expected[name])])
    return wrong


def compare_weights(found, expected):
    wrong = differences(found, expected)
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(expected)} weights: " + "; ".join(wrong[:4]))
    if not expected:
        raise AssertionError("no weights to compare")
    return f"{len(expected)} equal"


def compare_logits(found, expected):
    wrong = difference("the array of logits", found, expected)
    if wrong:
        raise AssertionError(wrong)
    if not torch.isfinite(expected).all():
        raise AssertionError("the logits are not finite")
    return "equal"


def compare_own(how, found, own):
    most, largest = (found - own).abs().max().item(), own.abs().max().item()
    # a wrong weight moves logits by as much as they are
    if most > (0 if how == EQUAL else largest / 4):
        raise AssertionError(f"logits differ from the quantised model's own by {most:.3g} of {largest:.3g}")
    return "equal" if most == 0 else f"within {most:.1g} of {largest:.1g}"


def first_line(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]
