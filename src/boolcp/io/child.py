"""A script that opens untrusted files (HDF5, MATLAB) in a process of its own, which may crash: see `limits`."""

import os
import pickle
import sys
import time
import warnings
import zlib
from contextlib import suppress

import numpy as np

SMALL = 10**8  # bytes of a file whose content is kept
DEEPEST = 60  # groups within each other
N_TEXTS = 100  # rows of them that are read at a time
LARGE, DEFLATED = 2**28, 1032  # bytes of a chunk that is looked at, and how many times its bytes zlib can unpack
PLAIN_FILTERS = {2, 3, 5, 6}  # shuffle, checksum, fewer bits: all others of HDF5 compress
KEPT: dict = {}


class TrapError(Exception):
    """A file that would hand out other files."""


def look_at_hdf5(path):
    """Return the datasets of an HDF5 file: {name: (shape, dtype, is numeric, dims or None, bytes stored, bytes)}.

    It is refused if it refers to other files, even by a dataset without a name, to which only a reference leads.
    """
    import h5py

    table: dict = {}
    items: list = []
    links: list = []

    def keep(name, link):
        links.append((name, getattr(link, "filename", None)))
        return name.count("/") > DEEPEST or None  # None goes on

    with h5py.File(path, "r") as file:
        if file.visititems_links(keep):
            raise TrapError(f"its groups are nested more than {DEEPEST} deep")
        for name, target in [link for link in links if link[1] is not None]:
            raise TrapError(f"{name!r} is a link to the file {target!r}")
        items.append(("/", file))
        file.visititems(lambda name, item: items.append((name, item)))
        seen = {h5py.h5o.get_info(item.id).addr for _, item in items}
        for name, item in items:  # datasets without a name are added on the way
            with suppress(TypeError):  # of a kind that numpy does not know
                refuse_shared(name, item.attrs.values(), path)
            if isinstance(item, h5py.Dataset):
                shown = "a dataset without a name" if name is None else repr(name)
                if item.external:
                    raise TrapError(f"{shown} takes its data from the file {item.external[0][0]!r}")
                if item.is_virtual:
                    raise TrapError(f"{shown} is virtual, a view of other datasets or files")
                if name is not None and item.shape is not None:
                    labels = tuple(dim.label for dim in item.dims)
                    dims = labels if all(labels) and len(set(labels)) == len(labels) else None
                    sizes = item.id.get_storage_size(), item.nbytes or 0
                    table[name] = item.shape, str(item.dtype), item.dtype.kind in "fiub", dims, *sizes
                refuse_packed(shown, item)
                if item.dtype.hasobject and item.shape is not None:  # all are read here: a damaged one for ever
                    some = (item[n : n + N_TEXTS] for n in range(0, len(item), N_TEXTS)) if item.shape else [item[()]]
                    refuse_shared(name, some, path)
                is_cell = item.shape is not None and h5py.check_ref_dtype(item.dtype) is h5py.Reference
                for reference in np.ravel(np.asarray(item[()], dtype=object)) if is_cell else ():
                    found = file[reference] if reference else item
                    if (address := h5py.h5o.get_info(found.id).addr) not in seen:
                        seen.add(address)
                        items.append((None, found))
    return table


def refuse_packed(shown, item):
    """Raise if a dataset is compressed twice, or if one of its chunks unpacks to far more than it should hold."""
    plist = item.id.get_create_plist()
    filters = [plist.get_filter(n)[0] for n in range(plist.get_nfilters())]
    if sum(code not in PLAIN_FILTERS for code in filters) > 1:
        raise TrapError(f"{shown} is compressed twice")
    if 1 not in filters or item.id.get_storage_size() * DEFLATED <= LARGE:  # 1 is zlib
        return
    most = 2 * int(np.prod(item.chunks)) * item.id.get_type().get_size()

    chunks: list = []
    item.id.chunk_iter(chunks.append)  # which stops at an answer other than None
    for chunk in chunks:
        if chunk.size * DEFLATED <= max(most, min(LARGE, DEFLATED * most)) or chunk.filter_mask >> filters.index(1) & 1:
            continue
        unpacker, left, total = zlib.decompressobj(), item.id.read_direct_chunk(chunk.chunk_offset)[1], 0
        while left and total <= most:
            total, left = total + len(unpacker.decompress(left, LARGE // 16)), unpacker.unconsumed_tail
        if total > most:
            raise TrapError(f"a chunk of {shown} unpacks to more than it should hold")


def refuse_shared(name, parts, path):
    """Raise if texts or lists take more bytes than their file, as they do if many share one place in it."""
    most, total = max(os.path.getsize(path), SMALL), 0
    for part in parts:
        rows = part.ravel() if isinstance(part, np.ndarray) and part.dtype.kind == "O" else ()
        total += sum(getattr(row, "nbytes", len(row)) for row in rows if hasattr(row, "__len__"))
        if total > most:
            raise TrapError(f"the texts of {name!r} take more memory than the file has bytes")


def read_all(path):
    """Return the variables of a .mat file, `name.field` of structs; a small file is kept until the next."""
    import h5py
    import pymatreader

    state = path, os.stat(path).st_mtime_ns, os.path.getsize(path)
    if state in KEPT:
        return KEPT[state]
    KEPT.clear()
    if h5py.is_hdf5(path):
        look_at_hdf5(path)
    content, left = {}, list(pymatreader.read_mat(path).items())[::-1]
    while left:
        name, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{name}.{part}", value[part]) for part in reversed(value)]
        elif not name.startswith(("__", "#")):
            content[name] = value
    KEPT.update({state: content} if state[-1] <= SMALL else {})
    return content


def list_mat(path):
    """Return what a .mat file holds: {name: (shape, kind, is numeric)}."""
    table = {}
    for name, value in read_all(path).items():
        array = np.empty(len(value), dtype=object) if isinstance(value, list) else np.asarray(value)
        table[name] = array.shape, str(array.dtype), array.dtype.kind in "fiubc"
    return table


def read_mat(path, name):
    """Return one variable of a .mat file."""
    return read_all(path)[name]


JOBS = {job.__name__: job for job in (look_at_hdf5, list_mat, read_mat)}


def limit(n_bytes, seconds):
    """Let the process take this much more memory and processor time, where the system can limit them."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        until = int(time.process_time() + seconds) + 1  # it ends itself if the process that asked is gone
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as file:  # of Linux; last, for a lower limit of the system refuses this one
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


def answer(name, path, arguments):
    """Return (kind of answer, value or message) of a job."""
    try:
        return "value", JOBS[name](path, *arguments)
    except (TrapError, MemoryError, KeyError) as error:
        return type(error).__name__, str(error)
    except Exception as error:  # a damaged file
        cause = error.__cause__ if isinstance(error, SystemError) and error.__cause__ else error  # of a callback
        return "error", str(cause) or type(error).__name__


def main():
    """Do jobs from standard input until it is closed."""
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    warnings.simplefilter("ignore")
    with suppress(EOFError):
        while True:
            memory, seconds, *job = pickle.load(source)
            limit(memory, seconds)
            pickle.dump(answer(*job), target, 5)
            target.flush()


if __name__ == "__main__":
    main()
