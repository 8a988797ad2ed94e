"""Files that an earlier version wrote are still read: a training goes on from its checkpoint, exactly."""

import json
import shutil
from pathlib import Path

import crash
import numpy as np

FIXTURES = Path(__file__).parent / "fixtures"


def test_a_training_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """From its ninth step: the same losses as an uninterrupted run, of then and of now."""
    run = tmp_path / "run"
    shutil.copytree(FIXTURES / "run", run)
    text = str(crash.write_text(tmp_path))
    assert crash.run(run, data=(text,), micro_batch=0) == 0
    assert crash.run(tmp_path / "anew", data=(text,), micro_batch=0) == 0
    resumed, model = crash.results(run)
    anew, model_anew = crash.results(tmp_path / "anew")
    then = [json.loads(line) for line in (FIXTURES / "run" / "uninterrupted.jsonl").read_text().splitlines()]
    assert [line["step"] for line in resumed] == [line["step"] for line in then]
    losses = [[line["loss"] for line in lines if "loss" in line] for lines in (resumed, then, anew)]
    # The fixture comes from one machine; another one's vector instructions round differently.
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    np.testing.assert_allclose(losses[0], losses[2], rtol=1e-3)
    if losses[0][:9] == losses[2][:9]:  # on a machine that rounds alike, every bit is the same
        assert (losses[0], model) == (losses[2], model_anew)
