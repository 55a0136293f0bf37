"""Templates: what is predicted, saved and compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anamnesis
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
MODEL = FIXTURES / "model" / "scribe.safetensors"


def test_workers_read_their_shares() -> None:
    one = anamnesis.predict(MODEL)
    two = anamnesis.predict(MODEL, tp=2)
    assert [group.rank for group in two.groups] == [0, 1] and two.parameters == {"tp": "2"}
    assert all(group.nbytes < one.nbytes and group.accesses > 0 for group in two.groups)
    assert two.nbytes == sum(group.nbytes for group in two.groups)
    # together the workers read what one reads alone
    assert one.coverage(two).covered == one.coverage(two).nbytes
    whole = anamnesis.predict(MODEL, tp=2, whole=True)
    assert whole.nbytes > two.nbytes
    replicated = anamnesis.predict(MODEL, tp=2, rules={"*": "replicate"})
    assert {group.nbytes for group in replicated.groups} == {one.nbytes}


def test_a_template_is_saved_and_the_same_as_that_of_the_command(tmp_path: Path) -> None:
    template = anamnesis.predict(MODEL, tp=2)
    for name in ["a.iot", "a.json"]:
        template.save(tmp_path / name)
        again = anamnesis.Template.open(tmp_path / name)
        assert again.groups == template.groups and again.files == template.files
        with pytest.raises(FileExistsError):
            template.save(tmp_path / name)
        template.save(tmp_path / name, overwrite=True)
    run = [sys.executable, "-m", "anamnesis", "template", "predict", str(MODEL), "-o", str(tmp_path / "b.json"), "--tp", "2"]
    assert subprocess.run(run, capture_output=True).returncode == 0
    theirs = anamnesis.Template.open(tmp_path / "b.json")
    assert theirs.groups == template.groups
    found = template.coverage(theirs)
    assert found.covered == found.nbytes and sum(file[1] for file in found.files) == found.nbytes
    assert json.loads((tmp_path / "a.json").read_text())


def test_wrong_predictions_are_refused(tmp_path: Path) -> None:
    for wrong in [{"tp": 0}, {"tp": 2, "ep": 3}, {"order": "random"}, {"rules": {"*": "diagonal"}}]:
        with pytest.raises(ValueError):
            anamnesis.predict(MODEL, **wrong)
    (tmp_path / "a.iot").write_bytes(b"no template")
    with pytest.raises(anamnesis.AnamnesisError):
        anamnesis.Template.open(tmp_path / "a.iot")
    with pytest.raises(FileNotFoundError):
        anamnesis.Template.open(tmp_path / "none")
