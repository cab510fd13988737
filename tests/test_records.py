"""Records: what was measured comes back as it was, and what is torn is named."""

import json
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from everlong.errors import EverlongError, RunStopped
from everlong.records import measurements
from everlong.records._record import Record
from everlong.records.conversion import Conversion
from everlong.records.diagnosis import Curve, Excess, Overview, Verdict
from everlong.records.doctor import Backend, Check, Checked, Doctor, Fact, StateLeaf
from everlong.records.experiment import Contrast, Experiment, ExperimentArm, MeanOverBases
from everlong.records.files import load_record, save_record
from everlong.records.sweep import ExposurePair, ExposureStudy, Sweep, SweepArm, SweepContrast
from everlong.records.tasks import Score, TaskCell, TaskEvaluation
from everlong.records.training import Exposure, Training
from tests.flushed import Disk
from tests.reports.synthetic import make_diagnosis, make_repair

NAN = float("nan")
EXCESS = Excess(
    reference="its own window of 64 tokens",
    starts=(32, 64),
    stops=(64, 128),
    mean=(0.0, NAN),
    lower=(-1e-17, NAN),
    upper=(float("inf"), NAN),
    documents=(8, 0),
    targets=(512, 0),
    confidence=0.95,
    interval="Student's t",
)
EXPOSURE = Exposure(ages=(1, 2, 4), tokens=(64.0, 32.5, 0.0), scored_tokens=64)
EXPOSURE_PAIR = ExposurePair(
    first="reference", second="half", ratio=np.array([1.0, NAN]), difference=np.array([[0.1] * 3, [0.0] * 3, [0.2] * 3])
)
SWEEP_ARM = SweepArm(
    label="zero",
    words="every row from zero",
    scores={"accuracy": np.array([[[1.0, 0.5], [0.25, NAN]]])},
    losses=np.array([[0.5, NAN]]),
    learned=np.array([[True, False]]),
    chosen=0,
    share=(0.5, 0.1, 0.9),
    mean=np.array([0.6, NAN]),
    lower=np.array([0.5, NAN]),
    upper=np.array([0.7, NAN]),
)
SWEEP_CONTRAST = SweepContrast(
    first="zero",
    second="state_passing",
    over="all seeds",
    seeds=2,
    mean=np.zeros(2),
    lower=np.array([-1.0, NAN]),
    upper=np.array([1.0, NAN]),
)
CHECKS = (
    Check(name="of words", ok=True, words="seen"),
    Check(name="of a number", ok=False, words="", value=float("inf"), bound=16.0, unit="eps", position=65),
)
FACT = Fact(name="d_model", value="1,024", source="model.d_model")
BACKENDS = (
    Backend(name="chunked", reason=None, chosen=True),
    Backend(name="cpu", reason="not installed", chosen=False),
)
LEAF = StateLeaf(name="shift", role="shift", shape=(128,), dtype="float32", layers=2, bytes=1024)
RAN: dict[str, Any] = {
    "rows": 2,
    "length": 131,
    "seed": 0,
    "backend": "chunked",
    "device": "cpu",
    "dtype": "float32",
    "seconds": 0.5,
}


def example(kind: Any) -> Any:
    """Something of a type, by its annotations."""
    parts = [part for part in get_args(kind) if part is not Ellipsis]
    if is_dataclass(kind):
        return kind(**{field.name: example(get_type_hints(kind)[field.name]) for field in fields(kind)})  # pyright: ignore
    if get_origin(kind) is tuple:
        return tuple(example(part) for part in (parts * 2 if Ellipsis in get_args(kind) else parts))
    if get_origin(kind) is dict:
        return {"one": example(parts[1]), "another": example(parts[1])}
    if parts:  # a union or the like
        return parts[0] if isinstance(parts[0], str) else example(parts[0])
    return {int: 3, float: NAN, str: "naïve", bool: True, np.ndarray: np.array([[1.5, NAN]], dtype=np.float32)}[kind]


SCORE = Score(mean=0.5, lower=0.1, upper=NAN)
CELL = TaskCell(
    task="recall",
    parameters={"length": 2048, "facts": 4, "distance": None, "depth": 0.1, "question": "qa1"},
    examples=2,
    tokens_read=4096,
    scores={"accuracy": SCORE},
    floors={"chance": 0.1},
    values={"accuracy": np.array([0.0, 1.0]), "nats": np.array([1.5, 2.5])},
    notes=("3 of 9 questions are left out",),
    seconds=0.5,
)
RECORDS = {
    **{
        kind.__name__: example(kind)
        for kind in (
            *vars(measurements).values(),
            Checked,
            Contrast,
            Experiment,
            ExperimentArm,
            MeanOverBases,
            Overview,
        )
        if isinstance(kind, type) and issubclass(kind, Record) and kind is not Record
    },
    "check": CHECKS[0],
    "failed check": CHECKS[1],
    "fact": FACT,
    "backend": BACKENDS[1],
    "state leaf": LEAF,
    "doctor": Doctor(
        model="tiny",
        format="rwkv",
        architecture="rwkv6",
        parameters=7,
        context=None,
        facts=(FACT,),
        backends=BACKENDS,
        state=(LEAF,),
        checks=CHECKS,
        **RAN,
    ),
    "conversion": Conversion(
        source="a",
        source_format="rwkv",
        target="b",
        target_format="fla",
        architecture="rwkv6",
        parameters=7,
        checks=CHECKS,
        **RAN,
    ),
    "excess": EXCESS,
    "exposure": EXPOSURE,
    "curve": Curve(policy="carry", starts=(0,), stops=(1,), losses=np.array([[1.5], [NAN]], dtype=np.float32)),
    "empty curve": Curve(policy="carry", starts=(), stops=(), losses=np.zeros((0, 0))),
    "verdict": Verdict(
        outcome="undecided",
        position=None,
        uses_to=None,
        sentence="Undecided: “more” documents needed — naïvely",
        definition_3_2="Not judged.",
        tolerance=0.02,
        confidence=0.95,
        documents=3,
        fewest_documents=8,
    ),
    "training": Training(
        method="state_passing",
        context=64,
        settings={"reset_probability": 0.1, "nested": {"names": ["a", None, True]}},
        steps=10,
        scored_tokens=5120,
        read_tokens=5120,
        first_loss=1.25,
        final_loss=NAN,
        exposure=EXPOSURE,
        backend="chunked",
        seconds=0.1,
        model_folder="models/state_passing",
    ),
    "score": SCORE,
    "task cell": CELL,
    "task evaluation": TaskEvaluation(
        task="passkey",
        measures=("accuracy",),
        length_is="tokens",
        settings={"depths": [0.1, 0.9], "wording": "full"},
        model="tiny",
        architecture="gla",
        parameters=7,
        context=None,
        tokenizer="bytes",
        cells=(CELL, CELL),
        confidence=0.95,
        seed=0,
        backend="chunked",
        device="cpu",
        dtype="float32",
        seconds=1.5,
    ),
    "sweep arm": SWEEP_ARM,
    "sweep contrast": SWEEP_CONTRAST,
    "sweep": Sweep(
        task="recall",
        measures=("accuracy",),
        length_is="tokens",
        cells=({"length": 64, "distance": None}, {"length": 128, "distance": 0}),
        floors=({"chance": 0.1}, {}),
        notes=((), ("a note",)),
        in_range=(0,),
        learns="accuracy of at least 0.9",
        learning_rates=(1e-3,),
        seeds=(0, 1),
        arms=(SWEEP_ARM,),
        contrasts=(SWEEP_CONTRAST,),
        context=None,
        architecture="mamba2",
        parameters=7,
        state="2 layers of 4 x 8 x 8 = 512 numbers a row",
        state_elements=512,
        examples=2,
        confidence=0.95,
        interval="over seeds",
        settings={"curriculum": ["5-10:2000"]},
        sentence="It is so.",
        seconds={"zero/rate-0.001/seed-0": 1.5},
    ),
    "exposure_pair": EXPOSURE_PAIR,
    "exposure_study": ExposureStudy(
        labels=("zero", "reference"),
        words=("100 steps of 16 rows", "100 steps of 16 rows"),
        ages=(512, 1024),
        exposure=np.array([[0.0, 0.0], [2e4, 7e3]]),
        step_tokens=(1024, 1024),
        correlations=np.full((2, 3, 3), -0.5),
        share_correlations=np.full((2, 3, 3), NAN),
        pairs=(EXPOSURE_PAIR,),
    ),
    "diagnosis": make_diagnosis(),
    "repair": make_repair(),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_comes_back_as_it_was(record, tmp_path):
    path = tmp_path / "records" / "one.json"
    save_record(record, path)
    again = load_record(path)
    assert type(again) is type(record)
    np.testing.assert_equal(asdict(again), asdict(record))
    assert dtypes(again) == dtypes(record)


def kinds_below(kind: type[Record]) -> set[type[Record]]:
    return {each for below in kind.__subclasses__() for each in (below, *kinds_below(below))}


def test_every_kind_of_record_is_proven():
    kinds = {type(record) for record in RECORDS.values()} | {type(make_repair().rows[0])}
    assert kinds == kinds_below(Record)
    assert len({kind.__name__ for kind in kinds}) == len(kinds)  # by which a record is known when it is read back


def test_a_record_is_json_that_anyone_can_read_and_arrays_are_numpy_s(tmp_path):
    save_record(RECORDS["curve"], tmp_path / "curve.json")
    content = json.loads((tmp_path / "curve.json").read_text(encoding="utf-8"))
    assert content["record"] == "Curve"
    assert content["policy"] == "carry"
    with np.load(tmp_path / "curve.npz") as arrays:
        np.testing.assert_array_equal(arrays[content["losses"]["npz"]], RECORDS["curve"].losses)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_torn_record_is_named(share, tmp_path):
    path = tmp_path / "excess.json"
    save_record(EXCESS, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(EverlongError, match=r"excess\.json is no readable record"):
        load_record(path)


def test_torn_or_missing_arrays_are_an_error_of_their_record(tmp_path):
    path, arrays = tmp_path / "curve.json", tmp_path / "curve.npz"
    save_record(RECORDS["curve"], path)
    arrays.write_bytes(arrays.read_bytes()[:40])
    with pytest.raises(EverlongError, match=r"curve\.json is no readable record"):
        load_record(path)
    arrays.unlink()
    with pytest.raises(EverlongError, match=r"curve\.json is no readable record"):
        load_record(path)


@pytest.mark.parametrize("content", ["[]", "{}", '{"record": "Diary"}', '{"record": "Exposure", "ages": [1]}'])
def test_json_that_is_no_record_is_an_error(content, tmp_path):
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(EverlongError, match=r"other\.json is no readable record"):
        load_record(tmp_path / "other.json")


def test_a_missing_record_is_an_error_that_says_where(tmp_path):
    with pytest.raises(EverlongError, match=r"no record at .*nothing\.json"):
        load_record(tmp_path / "nothing.json")


def test_a_record_and_its_arrays_are_on_the_disk_before_they_have_their_names(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    path = tmp_path / "run" / "records" / "curve.json"
    save_record(RECORDS["curve"], path)
    disk.assert_lasting(path)
    disk.assert_lasting(path.with_suffix(".npz"))
    disk.assert_made(path.parent)
    disk.assert_made(path.parent.parent)
    named = [inode for event, inode in disk.events if event == "named"]
    assert named == [path.with_suffix(".npz").stat().st_ino, path.stat().st_ino]  # the JSON last
    assert len(list(path.parent.iterdir())) == 2


def test_a_record_that_the_disk_does_not_give_is_not_called_torn(tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> str:
        raise OSError(5, "Input/output error")

    save_record(EXPOSURE, tmp_path / "exposure.json")
    monkeypatch.setattr(Path, "read_text", broken)
    with pytest.raises(RunStopped, match=r"cannot be read from the disk .*Input/output error.*left as it is"):
        load_record(tmp_path / "exposure.json")


def test_loading_never_unpickles(tmp_path):
    save_record(RECORDS["curve"], tmp_path / "curve.json")
    np.savez(tmp_path / "curve.npz", array_0=np.array([object()], dtype=object))
    with pytest.raises(EverlongError, match="allow_pickle=False"):
        load_record(tmp_path / "curve.json")


def test_a_write_that_fails_leaves_the_old_record_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "exposure.json"
    save_record(EXPOSURE, path)
    before = path.read_bytes()

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        save_record(EXCESS, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["exposure.json"]


def dtypes(record):
    return [value.dtype for value in vars(record).values() if isinstance(value, np.ndarray)]
