"""`torchrun --nproc_per_node 2 -m everlong train`: one start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from everlong.cli.main import main

FLAGS = ("--d-model", "16", "--n-layer", "2", "--d-state", "8", "--headdim", "8", "--vocab-size", "256")
COMMON = ("--context", "16", "--steps", "4", "--batch-size", "4", "--backend", "chunked")


def test_two_processes_train_one_model_in_one_run_folder(text, tmp_path, capsys):
    """The first alone writes and prints; the model is that of one process, but for rounding."""
    arguments = ["train", *COMMON, "--data", str(text), "--output"]
    architecture = ["mamba2", *FLAGS, "--pad-vocab-size-multiple", "1"]
    root = Path(__file__).parents[2]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        "everlong",
    ]
    done = subprocess.run(
        [*torchrun, *arguments, str(tmp_path / "two"), *architecture],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Trained 4 steps") == 1
    assert done.stdout.strip().splitlines()[-1] == str(tmp_path / "two" / "report.html")
    assert len((tmp_path / "two" / "metrics.jsonl").read_text().splitlines()) == 4
    assert main([*arguments, str(tmp_path / "one"), *architecture]) == 0
    one, two = (load_file(tmp_path / name / "models" / "scratch" / "model.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, weight in one.items():
        torch.testing.assert_close(weight, two[name], rtol=0, atol=2e-5, msg=name)


def test_a_verb_that_works_in_one_process_says_so(monkeypatch, capsys):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["doctor"]) == 2
    assert "torchrun started 2 processes, and this verb works in one" in capsys.readouterr().err


@pytest.mark.parametrize("several", [["--bases", "2"], ["--seeds", "2"]])
def test_several_bases_or_seeds_work_in_one_process_and_say_so(several, tmp_path, monkeypatch, capsys):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["repair", *several, "--output", str(tmp_path / "run")]) == 2
    assert "torchrun started 2 processes, and --bases and --seeds work in one" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
