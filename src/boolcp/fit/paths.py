"""The estimates with 0, 1, .. atoms, each refined: what `BMP.fit_path` returns."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from boolcp.fit.job import EXTRA_RANK, Job
from boolcp.fit.loss_stages import loss_path
from boolcp.fit.noise import noise_variance
from boolcp.fit.plan import make_plan, run
from boolcp.fit.polish import TOL, polish
from boolcp.fit.pursuit import add_greedy, pursue
from boolcp.fit.starts import refine_once
from boolcp.fit.state import Pursuit, State
from boolcp.fit.watch import Progress, Watch, progress
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns
from boolcp.storage import complete_tensor
from boolcp.storage.lazy import ObservedLazyTensor
from boolcp.storage.protocol import Storage

Tell = Callable[[Progress], Any]
SETTLED = 1e-4  # relative fall of the loss that ends the polish of an estimate on complete data; not tuned


def estimates(job: Job, tell: Tell) -> tuple[BooleanCP, ...]:
    """Return the refined estimates with 0, 1, .. atoms, each from the one before; `tell` hears of each."""
    data, s = job.data, job.settings
    if not (s.is_squared or s.atom_rank is None):
        return loss_path(job)
    if not s.refine or s.atom_rank is None or data.ndim == 2:
        return run(job, make_plan(data, s), State(), Watch(job.rng, [tell]))[0].path
    path: tuple[BooleanCP, ...] = (BooleanCP(data.shape),)
    for pursuit in refined_path(job):
        path = pursuit.path
        tell(progress("path", pursuit.n_atoms, s.n_atoms, 1.0, 1.0))
    return path


def refined_path(job: Job) -> Iterator[Pursuit]:
    """Yield the pursuit whose estimates are refined, each from the one before and a greedy atom."""
    data, rank = job.data, job.settings.n_columns + EXTRA_RANK
    small = data if data.is_weighted and not data.n_passes else complete_tensor(data, rank, job.settings.compression)
    if data.n_passes and small.is_compressed and not data.is_complete:  # again, with the gaps filled in
        *_, first = path_on(job, small)
        small = cast(ObservedLazyTensor, data).imputed(first.W, small.bases)
    yield from path_on(job, small)


def path_on(job: Job, small: Storage) -> Iterator[Pursuit]:
    """Yield the pursuit whose estimates are searched for on a small tensor.

    Each is polished on the full data, unless these have gaps and are read in passes.
    """
    data, find = job.data, job.find_on(small)
    is_rough = data.n_passes > 0 and not data.is_complete

    def correct(pursuit: Pursuit, found: Any) -> Pursuit:
        """Relax, round and polish on the small tensor, whose estimate is kept, and polish on the full data."""
        longer = add_greedy(pursuit.memory, 1, lambda W: found)
        if longer is None:
            return replace(pursuit, stop_reason="no descent")
        best = refine_once(small, longer, job.modes, find, job.rng)
        columns = best if is_rough else polish_once(data, best)
        if data.n_passes == 0 and not data.is_complete:
            columns = polish(data, columns, max_iter=3, variance=noise_variance(data, columns))
        memory = best.to_decomposition()
        W = memory if columns is best else columns.to_decomposition()
        is_longer = W.n_atoms > pursuit.n_atoms
        return Pursuit((*pursuit.path, W), memory=memory, stop_reason="" if is_longer else "no descent")

    first = Pursuit((BooleanCP(data.shape),), memory=BooleanCP(data.shape))
    yield from pursue(first, job.settings.n_atoms, lambda pursuit: find(pursuit.memory), correct)


def polish_once(data: Storage, best: Columns) -> Columns:
    """Return columns found on a small tensor after a sweep over the full data, or three where one changes them."""
    tol, loss = (SETTLED, best.loss) if data.is_complete else (TOL, float("inf"))
    return polish(data, best, max_iter=3, tol=tol, loss=loss)
