"""A process that looks into untrusted containers (HDF5, MATLAB, netCDF): it may crash, or run out of memory or time.

It is run as a script, without the rest of the package, so that it starts quickly. `boolcp.io.limits` starts it.
"""

import os
import pickle
import signal
import struct
import sys
import warnings
from contextlib import suppress

import numpy as np

MAX_OBJECTS, MAX_DEPTH = 100_000, 50  # of the groups and datasets of an HDF5 file
MAX_TEXT = 2**26  # bytes of text that a smaller file may hold
N_TEXTS = 1000  # read at a time
PASSIVE = (2, 3, 5, 6)  # filters of HDF5 that hardly change the size: shuffle, checksum, n bits, scale
GROWTH, UNKNOWN_GROWTH = {1: 1032, 32000: 100}, 10**5  # most bytes that one byte becomes: deflate, LZF
IDLE = 60  # seconds until an unused process ends
NUMERIC = ("double", "single", "logical", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


class TrapError(Exception):
    """A file that would hand out other files or exhaust the machine."""


def send(file, value):
    """Write a value; large arrays are not copied."""
    buffers: list = []
    parts = [pickle.dumps(value, 5, buffer_callback=buffers.append), *(buffer.raw() for buffer in buffers)]
    file.write(struct.pack(f"<{len(parts) + 1}Q", len(parts), *map(len, parts)))
    for part in parts:
        file.write(part)
    file.flush()


def receive(file):
    """Return the next value; raise an EOFError if the other process has ended."""
    (n_parts,) = struct.unpack("<Q", read_exactly(file, 8))
    sizes = struct.unpack(f"<{n_parts}Q", read_exactly(file, 8 * n_parts))
    parts = [read_exactly(file, size) for size in sizes]
    return pickle.loads(parts[0], buffers=parts[1:])


def read_exactly(file, size):
    """Return the next bytes."""
    content = bytearray(size)
    if file.readinto(content) < size:
        raise EOFError
    return content


def look_at_hdf5(path, memory):
    """Return the datasets of an HDF5 file: {name: (shape, dtype, is numeric, dims or None, bytes stored, bytes)}.

    Whatever is dangerous to read (texts and references of any length, large chunks) is read here once. A file is
    refused if it refers to other files, for it could then reveal the content of your own.
    """
    import h5py

    table: dict = {}
    seen, text = set(), 0
    with h5py.File(path, "r") as file:
        todo: list = [("", file["/"])]
        referred: list = []
        while todo or referred:
            name, item = todo.pop() if todo else (None, referred.pop())  # objects without a name come last
            address = h5py.h5o.get_info(item.id).addr
            if address in seen:
                continue
            seen.add(address)
            if len(seen) > MAX_OBJECTS:
                raise TrapError(f"it holds more than {MAX_OBJECTS} groups and datasets")
            values = [item.attrs[key] for key in item.attrs if item.attrs.get_id(key).dtype.hasobject]
            if isinstance(item, h5py.Group):
                if name is not None and name.count("/") > MAX_DEPTH:
                    raise TrapError(f"its groups are nested more than {MAX_DEPTH} deep")
                members = [(None if name is None else f"{name}/{key}", part) for key, part in members_of(item)]
                todo += reversed(members)
            elif isinstance(item, h5py.Dataset):
                shown = "a dataset without a name" if name is None else repr(name[1:])
                check_dataset(shown, item, memory)
                if name is not None and item.shape is not None:
                    labels = tuple(dim.label for dim in item.dims)
                    dims = labels if all(labels) and len(set(labels)) == len(labels) else None
                    sizes = item.id.get_storage_size(), item.nbytes or 0
                    table[name[1:]] = item.shape, str(item.dtype), item.dtype.kind in "fiub", dims, *sizes
                values.append(objects_of(item))
            for leaf in leaves(values):
                if not isinstance(leaf, h5py.Reference):
                    text += len(leaf) if isinstance(leaf, bytes | str) else leaf.nbytes
                    if text > max(os.path.getsize(path), MAX_TEXT):  # texts that share their bytes
                        raise TrapError(f"its texts have {text} bytes or more, and the file has fewer")
                elif leaf:
                    with suppress(ValueError, RuntimeError, OSError):  # a reference to what is gone
                        referred.append(file[leaf])
    return table


def members_of(group):
    """Return the members of a group that are not links."""
    import h5py

    links = [(name, group.get(name, getlink=True)) for name in group]
    for name, link in links:
        if isinstance(link, h5py.ExternalLink):
            raise TrapError(f"{name!r} is a link to the file {link.filename!r}")
    return [(name, group[name]) for name, link in links if isinstance(link, h5py.HardLink)]


def check_dataset(name, item, memory):
    """Raise a TrapError if a dataset is stored elsewhere or packed twice; read each chunk that could grow large."""
    plist = item.id.get_create_plist()
    if item.external:
        raise TrapError(f"{name} takes its data from the file {item.external[0][0]!r}")
    if item.is_virtual:
        raise TrapError(f"{name} is virtual, a view of other datasets or files")
    codes = [plist.get_filter(n)[0] for n in range(plist.get_nfilters())]
    packed = [code for code in codes if code not in PASSIVE]
    if len(packed) > 1:
        raise TrapError(f"{name} is compressed {len(packed)} times over")
    if packed and item.chunks:
        large, growth = [], GROWTH.get(packed[0], UNKNOWN_GROWTH)
        item.id.chunk_iter(lambda chunk: large.append(chunk.chunk_offset) if chunk.size * growth > memory else None)
        for offset in large:
            item[offset]


def objects_of(item):
    """Yield the texts and references of a dataset, some at a time."""
    if not item.dtype.hasobject or item.shape is None or 0 in item.shape:
        return
    rows = max(N_TEXTS * item.shape[0] // item.size, 1) if item.shape else 1
    for start in range(0, item.shape[0] if item.shape else 1, rows):
        yield item[start : start + rows] if item.shape else item[()]


def leaves(values):
    """Yield the texts, references and arrays of numbers in nested lists and arrays."""
    if isinstance(values, np.ndarray | np.void) and not values.dtype.hasobject:
        yield values
    elif isinstance(values, np.ndarray):
        for value in values.ravel().tolist() if values.dtype.names is None else values.ravel():
            yield from leaves(value)
    elif isinstance(values, bytes | str) or type(values).__name__ in ("Reference", "RegionReference"):
        yield values
    elif hasattr(values, "__iter__"):
        for value in values:
            yield from leaves(value)


def look_at_netcdf3(path, memory):
    """Read the header of a netCDF file of the classic kind."""
    import scipy.io

    with scipy.io.netcdf_file(path) as file:
        return len(file.variables)


def list_mat(path, memory):
    """Return the variables of a .mat file, with the fields of structs: {name: (shape, kind, is numeric)}."""
    import scipy.io

    try:
        found = scipy.io.whosmat(path)
    except NotImplementedError:
        found = list_mat73(path)
    table: dict = {}
    for name, shape, kind in found:
        fields = kind == "struct"
        table |= (
            list_fields(name, read_mat(path, memory, name)) if fields else {name: (tuple(shape), kind, kind in NUMERIC)}
        )
    return table


def list_mat73(path):
    """Return names, shapes and kinds of the variables of a .mat file that is HDF5."""
    import h5py

    found = []
    with h5py.File(path, "r") as file:
        for name, item in file.items():
            if not name.startswith("#"):
                kind = item.attrs.get("MATLAB_class", b"")
                kind = kind.decode() if isinstance(kind, bytes) else str(kind)
                shape = () if isinstance(item, h5py.Group) else item.shape[::-1]  # MATLAB stores columns first
                found.append((name, shape, kind or ("struct" if isinstance(item, h5py.Group) else str(item.dtype))))
    return found


def list_fields(name, value):
    """Return the fields of a struct."""
    if isinstance(value, dict):
        return {
            key: kind for part, inner in value.items() for key, kind in list_fields(f"{name}.{part}", inner).items()
        }
    array = np.empty(len(value), dtype=object) if isinstance(value, list) else np.asarray(value)
    return {name: (array.shape, str(array.dtype), array.dtype.kind in "fiub")}


def read_mat(path, memory, name):
    """Return one variable of a .mat file, or one field of a struct by its dotted name."""
    import pymatreader

    value = pymatreader.read_mat(path, variable_names=[name.partition(".")[0]])
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            raise KeyError(name)
        value = value[part]
    return value


def try_mat(path, memory):
    """Read a whole .mat file, and return nothing."""
    import pymatreader

    pymatreader.read_mat(path)


JOBS = {job.__name__: job for job in (look_at_hdf5, look_at_netcdf3, list_mat, read_mat, try_mat)}


def limit_memory(n_bytes):
    """Let the process take this many bytes more, where the system knows such limits."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (used + n_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))


def answer(name, path, memory, arguments):
    """Return (kind of answer, value or message) of one job."""
    try:
        return "value", JOBS[name](path, memory, *arguments)
    except TrapError as error:
        return "trap", str(error)
    except (MemoryError, KeyError) as error:
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
            if hasattr(signal, "alarm"):
                signal.alarm(IDLE)
            job = receive(source)
            if hasattr(signal, "alarm"):
                signal.alarm(0)
            limit_memory(job[2])
            send(target, answer(*job))


if __name__ == "__main__":
    main()
