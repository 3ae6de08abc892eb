"""The estimates with 0, 1, .. atoms, each refined: what `BMP.fit_path` returns."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from boolcp.fit import impute
from boolcp.fit.beside import SETTLED, merged, polished_near, settled
from boolcp.fit.block_stages import atoms_alone, is_rank_one, risk_of_columns, takes_background, takes_blocks, with_bits
from boolcp.fit.blocks import block_pursuit
from boolcp.fit.job import AUTO, EXTRA_RANK, Job
from boolcp.fit.loss_stages import loss_path
from boolcp.fit.noise import is_noise, noise_level, noise_variance
from boolcp.fit.plan import make_plan, run
from boolcp.fit.polish import TOL, polish
from boolcp.fit.pursuit import add_greedy, pursue
from boolcp.fit.starts import refine_once
from boolcp.fit.state import Pursuit, State
from boolcp.fit.watch import Progress, Watch, progress
from boolcp.result.atoms import BooleanCP
from boolcp.result.columns import Columns, to_columns
from boolcp.storage import complete_tensor
from boolcp.storage.lazy import ObservedLazyTensor
from boolcp.storage.protocol import Storage

Tell = Callable[[Progress], Any]


def estimates(job: Job, tell: Tell) -> tuple[BooleanCP, ...]:
    """Return the refined estimates with 0, 1, .. atoms, each from the one before; `tell` hears of each."""
    data, s = job.data, job.settings
    is_beside, is_polished = takes_background(data, s), True
    if not (s.is_squared or s.atom_rank is None):
        path = loss_path(job)
    elif not s.refine or s.atom_rank is None or data.ndim == 2:
        alone = atoms_alone(s) if is_beside else s
        path = run(replace(job, settings=alone), make_plan(data, alone), State(), Watch(job.rng, [tell]))[0].path
    else:
        path, is_polished = (BooleanCP(data.shape),), not is_polished_beside(job)
        for pursuit in refined_path(job):
            path, k = pursuit.path, pursuit.n_atoms
            tell(progress("path", k, s.n_atoms, 1.0, 1.0))
        if s.atom_rank == AUTO and not is_beside:
            path = ranked_path(job, path, tell)
    return beside_path(job, path, is_polished) if is_beside else path


def is_polished_beside(job: Job) -> bool:
    """Return True if estimates that were found on a small tensor are polished on the data beside their background."""
    return job.data.is_complete and not job.data.n_passes and takes_background(job.data, job.settings)


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

    Each is polished on the full data, unless these have gaps and are read in passes, or a background comes first.
    """
    data, find = job.data, job.find_on(small)
    is_rough = is_polished_beside(job) or (data.n_passes > 0 and not data.is_complete)

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


def beside_path(job: Job, refined: tuple[BooleanCP, ...], is_polished: bool) -> tuple[BooleanCP, ...]:
    """Return the refined estimates, each polished beside the background it leaves; the last ones may leave noise."""
    data, s = job.data, job.settings
    kind, path, n_beside = s.background or AUTO, list(refined), len(refined)

    def on_data(W: BooleanCP, max_iter: int) -> BooleanCP:
        """Polish an estimate that was found on a small tensor."""
        is_done = is_polished or W.n_atoms == 0
        return W if is_done else polish(data, to_columns(W), max_iter=max_iter, tol=SETTLED).to_decomposition()

    while n_beside > 0 and kind == AUTO:
        path[n_beside - 1] = W = on_data(path[n_beside - 1], 3)
        if not is_noise(data.residual(W)):
            break
        n_beside -= 1
    if n_beside == 0:
        return tuple(path)
    sigma = s.sigma
    if sigma is None:
        sigma = noise_level(data) if data.is_complete else impute.noise_of_filled(data, impute.fill(data, refined[-1]))
    for k, W in enumerate(path[:n_beside]):
        found = polished_near(data, W, sigma, path[k - 1]) if kind == AUTO and k else None
        if found is None:
            before = path[k - 1].background if k else None
            found = settled(data, on_data(W, 1), kind, sigma, before=before, is_polished=True)
        path[k] = merged(found).W
    return tuple(path)


def ranked_path(job: Job, refined: tuple[BooleanCP, ...], tell: Tell) -> tuple[BooleanCP, ...]:
    """Return the refined estimates of rank one, or at each number of atoms the blocks where their risk is lower."""
    data, s = job.data, job.settings
    if not takes_blocks(data) or is_noise(data.residual(refined[-1])):
        return refined
    if not data.is_complete:
        blocks = run(job, make_plan(data, s), State(), Watch(job.rng, [tell]))[0].path
        return refined if is_rank_one(blocks[-1]) else blocks
    sigma = noise_level(data) if s.sigma is None else float(s.sigma)
    options: dict[str, Any] = {"tol": job.tol, "certify": False, "criterion": s.criterion}
    steps = block_pursuit(data, s.n_atoms, job.modes, job.rng, atom_rank="auto", sigma=sigma, **options)
    *_, found = steps
    path, n_found = list(refined), len(found.path)
    for k, W in enumerate(refined[1:n_found], 1):
        risk = risk_of_columns(W, data.residual(W).squared_norm, sigma)
        if with_bits(found.memory[0][k], found.path[k], sigma) < with_bits(risk, W, sigma):
            path[k] = found.path[k]
    return (*path, *found.path[len(refined) :])
