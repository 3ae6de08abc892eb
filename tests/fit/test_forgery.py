"""A checkpoint with a right checksum and a wrong content gives a FileError in one line, and no fit resumes from it."""

import io
import json
import os
import zipfile

import numpy as np
import pytest
from samples import tensor

from boolcp.bmp import BMP
from boolcp.fit.checkpoint import HEADER, N_DIGEST, digest_of
from boolcp.fit.forgery import check_columns, check_sizes, is_of
from boolcp.fit.relax import Sweeps
from boolcp.fit.state import State
from boolcp.io import FileError
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns

X = tensor((8, 9, 10))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the bytes of a checkpoint that was written in the refinement."""
    path = tmp_path_factory.mktemp("whole") / "fit.npz"
    BMP(3, random_state=0).fit(X, checkpoint=path, callback=lambda progress: progress.stage == "search")
    return path.read_bytes()


def forge(path, change=lambda header: None, spoil=lambda array: array):
    """Change the header or the arrays of a checkpoint, and sign it again."""
    content = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, open(path, "w+b") as file:
        with zipfile.ZipFile(file, "w") as target:
            for name in archive.namelist():
                with archive.open(name) as member, target.open(name, "w") as out:
                    if name == HEADER:
                        header = json.load(member)
                        out.write(json.dumps(change(header) or header).encode())
                    else:
                        np.lib.format.write_array(out, spoil(np.lib.format.read_array(member)), allow_pickle=False)
            target.comment = b"0" * N_DIGEST
        digest = digest_of(file)
        file.seek(-N_DIGEST, os.SEEK_END)
        file.write(digest)


def nodes(tree, kind):
    """Yield all values of a type in the tree of a state."""
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(part, kind)
    if isinstance(tree, dict) and tree.get("type") == kind:
        yield tree["parts"]


def part(kind, **values):
    """Return a change of the parts of the first value of a type; "REMOVED" removes one."""

    def change(header):
        parts = next(nodes(header["state"], kind))
        for name, value in values.items():
            assert name in parts
            parts[name] = value
            if value == "REMOVED":
                del parts[name]

    return change


def top(**values):
    return lambda header: header | values


FORGED = {
    "a list": (lambda header: [1, 2], "not a readable checkpoint"),
    "no state": (lambda header: header.pop("state") and header, "not a readable checkpoint"),
    "a state that is a number": (top(state=5), "holds a int, not the state"),
    "a state that is an atom": (lambda h: h | {"state": h["state"]["parts"]["done"]}, "holds a dict, not the state"),
    "an unknown type": (top(state={"type": "Popen", "parts": {}}), "not a readable checkpoint"),
    "an array that is not there": (part("BooleanCP", weights={"array": 999}), "not a readable checkpoint"),
    "weights that are text": (part("BooleanCP", weights="heavy"), "not a readable checkpoint"),
    "weights that are NaN": (part("BooleanCP", weights=[float("nan")]), "not a readable checkpoint"),
    "a z that is zero": (part("Atom", z=[0] * 8), "no entry that is on|does not fit"),
    "a mode of 7": (part("Atom", mode=7), "not a readable checkpoint"),
    "a record of text": (part("AtomRecord", loss="small"), "the part loss of its AtomRecord is 'small'"),
    "a record with a truth for a number": (part("AtomRecord", n_ones=True), "the part n_ones"),
    "a record without a loss": (part("AtomRecord", loss="REMOVED"), "not a readable checkpoint"),
    "a record with one part more": (
        lambda h: next(nodes(h["state"], "AtomRecord")).update(more=1),
        "not a readable checkpoint",
    ),
    "a history of numbers": (part("Pursuit", history={"tuple": [1, 2]}), "the part history of its Pursuit"),
    "a reason that is a number": (part("Pursuit", stop_reason=3), "the part stop_reason of its Pursuit"),
    "a stage of 99": (part("State", stage=99), "is at stage 99"),
    "a stage of -1": (part("State", stage=-1), "is at stage -1"),
    "a stage too early": (part("State", stage=0), "is at stage 0"),
    "a stage that is text": (part("State", stage="last"), "the part stage of its State"),
    "nothing done": (part("State", done={"dict": {}}), "is at stage"),
    "columns of other atoms": (part("Columns", owner=[5, 6, 7]), "its columns do not belong to 3 atoms"),
    "columns along other modes": (part("Columns", boolean_mode=[0, 1, 9]), "its columns do not belong to"),
    "columns of another number": (part("Columns", owner=[0, 1, 2, 2]), "its columns along mode 0 are"),
    "columns of one atom": (part("Columns", owner={"array": 0}), "not a readable checkpoint"),
    "atoms without bounds": (part("BooleanCP", weights=[1e300] * 9), "too large|not a readable checkpoint"),
    "a start that is a list": (lambda h: h["state"]["parts"]["done"]["dict"].update(start=[]), "its stage start is a"),
    "a pursuit that is a number": (
        lambda h: h["state"]["parts"]["done"]["dict"].update(pursuit=2.5),
        "its stage pursuit is a float",
    ),
    "no parameters": (top(parameters=None), "it has no parameters"),
    "no data": (top(data=3), "it has no data"),
    "no seed": (top(parameters={}), "no random_state"),
    "a random state of text": (top(random_state="random"), "it has no random_state"),
    "a random state of another kind": (top(random_state={"bit_generator": "MT19937"}), "not a readable checkpoint"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_refused_in_one_line(name, whole, tmp_path):
    (path, (change, words)) = tmp_path / "fit.npz", FORGED[name]
    path.write_bytes(whole)
    forge(path, change)
    before = path.read_bytes()
    with pytest.raises(FileError, match=words) as caught:
        BMP(3, random_state=0).fit(X, checkpoint=path)
    assert "fit.npz" in str(caught.value) and "\n" not in str(caught.value)
    assert path.read_bytes() == before, "it is not overwritten"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda A: np.full_like(A, np.nan) if A.dtype.kind == "f" else A, "must be finite"),
        (lambda A: A.astype("U8"), "not a readable checkpoint"),
        (lambda A: A[..., :-1], "not a readable checkpoint|are not|does not fit"),
    ],
)
def test_forged_arrays_are_refused(spoil, words, whole, tmp_path):
    path = tmp_path / "fit.npz"
    path.write_bytes(whole)
    forge(path, spoil=spoil)
    with pytest.raises(FileError, match=words):
        BMP(3, random_state=0).fit(X, checkpoint=path)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (State(done={"start": BooleanCP((8, 9, 9))}), r"atoms of the shape \(8, 9, 9\)"),
        (
            State(here=(Sweeps(Columns((np.ones((7, 1)),) * 3, np.zeros(1, int), np.zeros(1, int), 0.0)),)),
            r"\(7, 7, 7\)",
        ),
    ],
)
def test_atoms_of_other_tensors_are_refused(value, words):
    with pytest.raises(ValueError, match=words):
        check_sizes(value, (8, 9, 10))
    check_sizes(State(done={"start": BooleanCP((8, 9, 10))}), (8, 9, 10))


@pytest.mark.parametrize("mode", [0, 1])
def test_columns_whose_squares_are_infinite_are_refused(mode):
    matrices = [np.ones((d, 1)) for d in (4, 5, 6)]
    check_columns(Columns(matrices, [0], [0]))
    matrices[mode] = 1e200 * matrices[mode]
    with pytest.raises(ValueError, match="sizes of atoms must be finite"):
        check_columns(Columns(matrices, [0], [0]))


@pytest.mark.parametrize("error", [KeyError("ours"), TypeError("ours"), ZeroDivisionError("ours")])
def test_a_fault_within_a_resumed_fit_is_not_blamed_on_the_file(error, whole, tmp_path, monkeypatch):
    path = tmp_path / "fit.npz"
    path.write_bytes(whole)

    def fail(*arguments):
        raise error

    monkeypatch.setattr("boolcp.fit.plan.outcome", fail)
    with pytest.raises(type(error), match="ours"):
        BMP(3, random_state=0).fit(X, checkpoint=path)


def test_a_random_state_does_not_name_other_functions(whole, tmp_path):
    path = tmp_path / "fit.npz"
    path.write_bytes(whole)
    forge(path, lambda h: h["parameters"].update(random_state={"bit_generator": "seed"}))
    with pytest.raises(FileError, match=r"fit\.npz: not a readable checkpoint"):
        BMP.resume(path, X)


@pytest.mark.parametrize(
    "forged",
    [{"n_atoms": -1}, {"n_atoms": "x"}, {"shell": 1}, {"random_state": -5}, {"tol": []}, {"sigma": "x"}]
    + [{"boolean_modes": modes} for modes in ([9], [[0]], {"a": 1})],
    ids=str,
)
def test_forged_parameters_are_refused_by_the_name_of_the_file(forged, whole, tmp_path):
    path = tmp_path / "fit.npz"
    path.write_bytes(whole)
    forge(path, lambda h: h["parameters"].update(forged))
    with pytest.raises(FileError, match=r"fit\.npz: not a readable checkpoint"):
        BMP.resume(path, X)


@pytest.mark.parametrize("junk", [None, 5, [], {"tuple": []}, {"tuple": [1, 2]}, {"dict": {}}], ids=str)
def test_a_finished_fit_without_a_result_is_refused(junk, tmp_path):
    path = tmp_path / "fit.npz"
    BMP(1, random_state=0, n_init=1).fit(X, checkpoint=path)
    forge(path, lambda h: h["state"]["parts"]["done"]["dict"].update(result=junk))
    with pytest.raises(FileError, match=r"fit\.npz: not a readable checkpoint"):
        BMP.resume(path, X)


def test_an_error_of_a_callback_is_not_one_of_the_file(whole, tmp_path):
    path = tmp_path / "fit.npz"
    path.write_bytes(whole)
    with pytest.raises(ZeroDivisionError):
        BMP.resume(path, X, callback=lambda progress: 1 / 0)


@pytest.mark.parametrize("forged", [{"shape": 3}, {"shape": []}, {"sha256": [[1], [2, 3]]}, {"sha256": []}], ids=str)
def test_forged_data_are_refused(forged, whole, tmp_path):
    path = tmp_path / "fit.npz"
    path.write_bytes(whole)
    forge(path, lambda h: h["data"].update(forged))
    with pytest.raises(FileError, match=r"fit\.npz: (not a readable checkpoint|is the checkpoint of a different fit)"):
        BMP(3, random_state=0).fit(X, checkpoint=path)


def test_arrays_of_a_checkpoint_that_would_fill_the_memory_are_not_read(whole, tmp_path, monkeypatch):
    path = tmp_path / "fit.npz"
    path.write_bytes(whole)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for n in range(1000, 1050):
            archive.writestr(f"{n}.npy", bytes(10**6))
        archive.comment = b"0" * N_DIGEST
    with open(path, "r+b") as file:
        digest = digest_of(file)
        file.seek(-N_DIGEST, os.SEEK_END)
        file.write(digest)
    monkeypatch.setattr("boolcp.io.limits.LARGE", 2 * 10**6)
    with pytest.raises(FileError, match=r"refused: its content would grow from .* in the file to 50"):
        BMP(3, random_state=0).fit(X, checkpoint=path)


def test_types_are_those_of_the_annotation():
    assert is_of(1, float) and is_of(None, int | None) and is_of((1, 2), tuple[int, ...]) and is_of({}, dict[str, int])
    assert not (
        is_of(True, int) or is_of("1", float) or is_of([1], tuple[int, ...]) or is_of((1, "a"), tuple[int, ...])
    )
