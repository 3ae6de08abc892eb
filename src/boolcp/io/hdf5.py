"""HDF5 files, by the path of a dataset in them."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from boolcp.extras import load_extra
from boolcp.io import limits
from boolcp.io.errors import FileError, reading
from boolcp.io.limits import expansion
from boolcp.io.variables import NamedArrays, Variable
from boolcp.storage.sources import Source

DEFLATE, MOST = 1, 1032  # the code of a filter, and how many bytes it makes of one at most
MOST_REFERENCES = 10**7  # in one dataset: a MATLAB file has one for each cell


def refuse_traps(path: Path, kind: str = "HDF5 file") -> None:
    """Raise a FileError if an HDF5 file refers to data in other files, or claims far more numbers than it holds.

    With links, external storage and virtual datasets, a file that somebody sent you could reveal the content of
    your own files. A dataset without a name, to which only a reference leads, could hide such a trap.
    """
    h5py = load_extra("h5py", "files")

    def of_link(name: str, link: Any) -> str | None:
        return f"{name!r} is a link to the file {link.filename!r}" if isinstance(link, h5py.ExternalLink) else None

    sizes: list[tuple[int, int]] = []  # of each dataset, in the file and in memory
    known: set[int] = set()  # where the objects with names are

    def of_item(name: str, item: Any) -> str | None:
        known.add(h5py.h5o.get_info(item.id).addr)
        if not isinstance(item, h5py.Dataset):
            return None
        if item.external:
            return f"{name!r} takes its data from the file {item.external[0][0]!r}"
        if item.is_virtual:
            return f"{name!r} is virtual, a view of other datasets or files"
        sizes.append((item.id.get_storage_size(), item.nbytes or 0))
        return expansion(repr(name), *sizes[-1]) or of_chunks(name, item)

    with reading(path, kind), h5py.File(path, "r") as file:
        problem = file.visititems_links(of_link) or of_item("/", file) or file.visititems(of_item)  # until there is one
        problem = problem or of_references("/", file, known)
        problem = problem or file.visititems(lambda name, item: of_references(name, item, known))
    problem = problem or expansion("its content", sum(n for n, _ in sizes), sum(n for _, n in sizes))
    if problem:
        advice = "If you trust it, open it with h5py and pass the dataset, or copy all data into one file."
        raise FileError(path, f"refused: {problem}", advice)


def of_references(name: str, item: Any, known: set[int]) -> str | None:
    """Return the problem of an object with a reference to one that has no name, else None."""
    h5py = load_extra("h5py", "files")

    def refers(part: Any) -> bool:
        return bool(part.get_type().detect_class(h5py.h5t.REFERENCE))

    keys = [key for key in item.attrs if key != "REFERENCE_LIST"]  # no reader follows it, and it may be out of date
    values = [item.attrs[key] for key in keys if refers(item.attrs.get_id(key))]
    if isinstance(item, h5py.Dataset) and refers(item.id):
        if (item.size or 0) > MOST_REFERENCES:
            return f"{name!r} holds {item.size} references"
        values.append(item[()])
    for reference in references(values, h5py.Reference):
        if h5py.h5o.get_info(h5py.h5r.dereference(reference, item.id)).addr not in known:
            return f"{name!r} refers to a dataset that has no name"
    return None


def references(values: Any, kind: type) -> Iterator[Any]:
    """Yield the references in nested lists and arrays, but those that lead nowhere."""
    if isinstance(values, kind):
        if values:
            yield values
    elif isinstance(values, list | tuple | np.ndarray | np.void):
        for value in np.ravel(values) if isinstance(values, np.ndarray) else tuple(values):  # type: ignore[arg-type]
            yield from references(value, kind)


def of_chunks(name: str, dataset: Any) -> str | None:
    """Return the problem of a dataset with a chunk that inflates to far more bytes than it should have, else None.

    HDF5 unpacks a chunk to its end, however much that is. Only chunks that can grow large are tried.
    """
    plist = dataset.id.get_create_plist()
    codes = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    if DEFLATE not in codes or MOST * dataset.id.get_storage_size() <= limits.LARGE:
        return None
    due = int(np.prod(dataset.chunks, dtype=float)) * dataset.dtype.itemsize
    large: list[tuple[int, ...]] = []

    def note(chunk: Any) -> None:
        if MOST * chunk.size > limits.LARGE and not chunk.filter_mask >> codes.index(DEFLATE) & 1:
            large.append(chunk.chunk_offset)

    dataset.id.chunk_iter(note)
    for offset in large:
        content, inflate, n_inflated = dataset.id.read_direct_chunk(offset)[1], zlib.decompressobj(), 0
        while content:
            n_inflated += len(inflate.decompress(content, limits.LARGE // 16))
            content = inflate.unconsumed_tail
            if problem := expansion(f"a part of {name!r}", due, n_inflated, 2):
                return problem
    return None


def read_hdf5(path: Path) -> NamedArrays:
    """Return the datasets of an HDF5 file by path, with the names of their dimensions if they have any."""
    refuse_traps(path)
    h5py = load_extra("h5py", "files")
    table: dict[str, Variable] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            names = tuple(dim.label for dim in item.dims)
            dims = names if all(names) and len(set(names)) == len(names) else None
            table[name] = Variable(item.shape, str(item.dtype), item.dtype.kind in "fiub", dims)

    with reading(path, "HDF5 file"), h5py.File(path, "r") as file:
        file.visititems(visit)

    def read(name: str) -> Any:
        with reading(path, "HDF5 file"), h5py.File(path, "r") as file:
            return file[name][()]

    def read_lazy(name: str) -> Any:
        with reading(path, "HDF5 file"), h5py.File(path, "r") as file:
            return Source(file[name]).lazy()

    return Hdf5Arrays(path, table, read, read_lazy)


class Hdf5Arrays(NamedArrays):
    """Datasets of an HDF5 file; a path may start with a slash."""

    def choose(self, name: str | None = None) -> str:
        """Return the path of the requested dataset."""
        name = name if name is None else name.strip("/")
        if name is not None and any(known.startswith(f"{name}/") for known in self.table):
            raise FileError(self.path, f"{name!r} is a group, not a dataset", f"It holds {self.listing()}.")
        return super().choose(name)
