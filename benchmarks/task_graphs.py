"""Task graphs of passes over the data: recorded with the time and size of each task, and replayed on more workers."""

import time
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from dask.callbacks import Callback
from dask.utils import key_split

BANDWIDTH, LATENCY = 1e9, 1e-3  # bytes per second and seconds of one transfer between workers
OVERHEAD = 2e-4  # seconds of the scheduler for each task, one after another


@dataclass(frozen=True)
class Task:
    """One task: the kind it is of, what it needs, its seconds and the bytes of its result."""

    kind: str
    needs: tuple
    seconds: float
    n_bytes: int


class Recorder(Callback):
    """Notes every graph that is computed within its `with` block, one for each pass, as {key: Task} in order."""

    def __init__(self):
        super().__init__(start_state=self._begin, pretask=self._before, posttask=self._after)
        self.graphs = []

    def _begin(self, dsk, state):
        self.graphs.append({})
        given = set(state["cache"])  # constants, which no task makes
        self._needs = {key: tuple(needs - given) for key, needs in state["dependencies"].items()}

    def _before(self, key, dsk, state):
        self._start = time.perf_counter()

    def _after(self, key, value, dsk, state, worker):
        seconds = time.perf_counter() - self._start
        self.graphs[-1][key] = Task(key_split(key), self._needs.get(key, ()), seconds, count_bytes(value))


def count_bytes(value):
    """Return the bytes of the arrays in a result."""
    if isinstance(value, dict):
        return sum(map(count_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(count_bytes, value))
    return int(getattr(value, "nbytes", 32))


def typical(graph):
    """Return {kind: (median seconds, median bytes)} of a recorded graph."""
    kinds = defaultdict(list)
    for task in graph.values():
        kinds[task.kind].append((task.seconds, task.n_bytes))
    return {kind: tuple(np.median(values, axis=0)) for kind, values in kinds.items()}


def simulate(graph, n_workers, costs):
    """Return the seconds and the bytes moved when a graph runs on `n_workers`, each task where it can begin first.

    Tasks without needs (reading a block) are dealt out, neighbors together; a task whose inputs lie elsewhere waits
    for them to travel; the scheduler hands out one task after another.
    """
    roots = [key for key, task in graph.items() if not task.needs]
    home = {key: i * n_workers // len(roots) for i, key in enumerate(roots)}
    free, ready, place, moved = np.zeros(n_workers), {}, {}, 0
    for count, (key, task) in enumerate(graph.items()):
        seconds, _ = costs[task.kind]
        if key in home:
            worker, begin = home[key], free[home[key]]
        else:
            options = []
            for candidate in {place[need] for need in task.needs}:
                arrivals = [arrival(need, candidate, ready, place, graph, costs) for need in task.needs]
                options.append((max(free[candidate], *arrivals), candidate))
            begin, worker = min(options)
            moved += sum(costs[graph[need].kind][1] for need in task.needs if place[need] != worker)
        begin = max(begin, count * OVERHEAD)
        free[worker] = ready[key] = begin + seconds
        place[key] = worker
    return max(ready.values()), moved


def arrival(need, worker, ready, place, graph, costs):
    """Return when a result is at a worker."""
    if place[need] == worker:
        return ready[need]
    return ready[need] + LATENCY + costs[graph[need].kind][1] / BANDWIDTH
