"""A background beside the atoms: low-rank structure of their residual, found in turn with them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import cast

import numpy as np

from boolcp.fit._kernels import fill_gaps
from boolcp.fit.noise import MAX_SIDE, SMALLEST, largest_value, noise_edge, shrink_values, spectral_dof
from boolcp.fit.polish import polish
from boolcp.fit.relax import last
from boolcp.fit.shrinkage import signal_subspaces
from boolcp.result.atoms import BooleanCP
from boolcp.result.background import Background
from boolcp.result.columns import to_columns
from boolcp.storage import DenseTensor, make_storage
from boolcp.storage.lazy import LazyTensor
from boolcp.storage.long import is_long, n_columns
from boolcp.storage.protocol import Storage, Tensor

Estimate = tuple[np.ndarray, float]  # of the data, and its degrees of freedom

# limits of the work, by reasoning; not tuned
N_COPIES = 4  # of the factors of a background, where data are read in passes
N_FILLS = 30  # rounds of filling in missing entries and shrinking
N_SWEEPS = 2  # over the atoms, without the entries that are held out
FILLED = 1e-3  # relative change of the background that ends them
HELD_OUT = 0.1  # share of the observed entries by which unfoldings are compared
FALL = 0.8  # of the noise level in a round; not tuned
CLEAR = 2.0  # gain on held-out entries, in its standard errors, from which there is a background; not tuned
PATIENCE = 3  # rounds without a lower error on held-out entries that end them; not tuned
ROUNDED = 1e-7  # relative size of the root of an eigenvalue that is rounding
MAX_MOVES = 1000  # of weight between two estimates
SEED = 5741092  # of that choice: one that the mask of a user is hardly drawn with


def find_background(
    data: Storage, W: BooleanCP, kind: str | int, sigma: float, before: Background | None = None, clear: float = 0.0
) -> Background | None:
    """Return the background of the residual, along the best unfolding; None if it is noise.

    Of complete data the best unfolding has the lowest estimated risk. With missing entries it predicts held-out entries
    best, and the missing ones are filled in from the background, in turn with its singular values.

    Parameters
    ----------
    kind : "auto" or int
        Shrink the singular values optimally for the noise, or keep this many of them.
    sigma : float
        Standard deviation of the noise.
    before : Background, optional
        One that was found beside other atoms. Its mode is the likely best one. With missing entries it is kept, and
        its values are the first that are filled in.
    clear : float
        None unless the risk along every other mode is higher by more than this.
    """
    R = data.residual(W)
    if not data.is_complete:
        filled = fill_in(R.to_array(), np.asarray(data.mask), kind, sigma, before, partial(left_over, data, W, sigma))
        return None if filled is None else with_shares(data, W, filled, without(data, filled).residual(W).squared_norm)
    modes = short_sides(R)
    data.ask_grams([mode for mode in modes if R.shape[mode] <= n_columns(R, mode)])
    if W.n_atoms and not (data.n_passes or W.is_block):
        data.ask_ahead([W.matrices])
    likely = None if before is None else before.mode
    options = [shrunk_along(R, mode, kind, sigma, has_vectors=likely in (None, mode)) for mode in modes]
    options = [each for each in options if not data.n_passes or low_rank_bytes(R, each.mode, each.rank) <= data.limit]
    best = min(options, key=lambda each: each.risk, default=None)
    if best is None or best.rank == 0 or (kind == "auto" and not best.risk < R.squared_norm):
        return None
    if clear and any(each.risk <= best.risk + clear for each in options if each is not best):
        return None
    if likely not in (None, best.mode):
        best = shrunk_along(R, best.mode, kind, sigma)
    return with_shares(data, W, best.background(R), best.risk - 2 * sigma**2 * best.dof)


def best_mean(data: Storage, sigma: float, given: Sequence[Estimate] = ()) -> tuple[np.ndarray, float, float]:
    """Return the mean of several estimates of the data with the lowest estimated risk, |X - E|^2 and its freedom.

    The data are shrunk along each unfolding, and projected on the directions of all modes above the noise; others may
    be `given`. The degrees of freedom of a mean are the mean of theirs, so that its risk is quadratic in the weights.
    """
    shrunk = (shrunk_along(data, mode, "auto", sigma) for mode in short_sides(data))
    options = [(each.background(data).to_tensor(), each.dof) for each in shrunk if each.rank]
    *_, (part, ranks) = signal_subspaces(data, sigma)
    if part.is_compressed:
        n_free = float(np.prod(ranks)) + sum(r * (d - r) for r, d in zip(ranks, data.shape, strict=True))
        options.append((part.to_array(), n_free))
    options += given
    rests, freedom = [data.to_array() - E for E, _ in options], np.array([dof for _, dof in options])
    G = np.array([[np.vdot(first, second) for second in rests] for first in rests], dtype=float)
    w = mean_weights(G, 2 * sigma**2 * freedom, 2 * sigma**2)
    E = sum(weight * E for weight, (E, _) in zip(w, options, strict=True) if weight > 0)
    return np.asarray(E), float(w @ G @ w), float(w @ freedom)


def mean_weights(G: np.ndarray, q: np.ndarray, least: float) -> np.ndarray:
    """Return weights w >= 0 of sum one with a low w'Gw + q'w: from the best single one, two at a time.

    Weight goes from one to another as long as that gains more than `least`.
    """
    w = np.zeros(len(q))
    w[np.argmin(G.diagonal() + q)] = 1.0
    for _ in range(MAX_MOVES):
        slope = 2 * G @ w + q
        to, out = int(np.argmin(slope)), int(np.argmax(np.where(w > 0, slope, -np.inf)))
        curve, fall = G[to, to] + G[out, out] - 2 * G[to, out], slope[out] - slope[to]
        moved = min(fall / (2 * curve), w[out]) if curve > 0 else 0.0
        if moved * (fall - moved * curve) <= least:
            break
        w[to], w[out] = w[to] + moved, w[out] - moved
    return w


def low_rank_bytes(R: Tensor, mode: int, rank: int) -> float:
    """Return the memory of the factors of a background, with copies."""
    return 8.0 * N_COPIES * rank * (R.shape[mode] + n_columns(R, mode))


def with_shares(data: Storage, W: BooleanCP, background: Background, loss: float) -> Background:
    """Return a background with its shares of the variance, from |X - W - B|^2 and |X - W|^2, in C order.

    |X - B|^2 = |X - W - B|^2 + 2 <X - B, W> - |W|^2, and <X, W> comes from |X - W|^2.
    """
    total, left = max(data.squared_norm, np.finfo(float).tiny), data.residual(W).squared_norm
    others = W.shape[: background.mode] + W.shape[background.mode + 1 :]
    products = W.project(background.mode, background.right.T.reshape(-1, *others)) if W.n_atoms else 0.0
    alone = left - loss + 2 * float(np.sum(products * background.left))
    own = alone / total if data.is_complete else None
    return replace(
        background,
        left=np.ascontiguousarray(background.left),
        right=np.ascontiguousarray(background.right),
        share=(left - loss) / total,
        alone=own,
        n_observed=data.n_observed,
    )


def short_sides(R: Tensor) -> list[int]:
    """Return the modes whose unfoldings have a short side, at least the one with the shortest."""
    sides = [(min(d, n_columns(R, mode)), mode) for mode, d in enumerate(R.shape)]
    short = [mode for side, mode in sides if side <= MAX_SIDE and not is_long(side)]
    return short or [min(sides)[1]]


@dataclass(frozen=True)
class Shrunk:
    """What shrinkage keeps of the unfolding along one mode: its short singular vectors, by how much each shrinks."""

    mode: int
    vectors: np.ndarray
    scale: np.ndarray
    dof: float
    risk: float

    @property
    def rank(self) -> int:
        """Return the number of singular values that are kept."""
        return len(self.scale)

    def background(self, R: Tensor) -> Background:
        """Return the background of which R is asked for the long singular vectors."""
        mode, first = self.mode, self.vectors
        if R.shape[mode] <= n_columns(R, mode):
            left, right = first * self.scale, np.asarray(R.contract(mode, first), dtype=float).reshape(self.rank, -1).T
        else:
            others = R.shape[:mode] + R.shape[mode + 1 :]
            left, right = np.asarray(R.project(mode, first.T.reshape(-1, *others)), dtype=float), first * self.scale
        return Background(R.shape, mode, left, right, self.dof, 0.0)


def along(R: Tensor, mode: int, kind: str | int, sigma: float) -> tuple[float, Background | None]:
    """Return the estimated risk and the background along one mode; None if nothing stands out of the noise."""
    found = shrunk_along(R, mode, kind, sigma)
    return found.risk, found.background(R) if found.rank else None


def shrunk_along(R: Tensor, mode: int, kind: str | int, sigma: float, *, has_vectors: bool = True) -> Shrunk:
    """Return what shrinkage keeps of the unfolding along one mode, from its smaller Gram matrix alone.

    Without vectors it takes half the time, and tells the risk.
    """
    d, c = R.shape[mode], n_columns(R, mode)
    gram = R.gram(mode) if d <= c else R.column_gram(mode)
    values, vectors = np.linalg.eigh(gram) if has_vectors else (np.linalg.eigvalsh(gram), np.zeros((len(gram), 0)))
    s, vectors = np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1]
    long, short = max(d, c), min(d, c)
    if kind == "auto":
        f, slope = shrink_values(s, sigma, long, short)
        rank, dof = int(np.sum(f > 0)), spectral_dof(s, f, slope, long - short)
    else:
        rank = min(int(kind), int(np.sum(s > ROUNDED * s[0])))
        f, dof = np.where(np.arange(short) < rank, s, 0.0), float(rank * (d + c - rank))
    risk = R.squared_norm + (float(np.sum((s - f) ** 2 - s**2)) + 2 * sigma**2 * dof if rank else 0.0)
    return Shrunk(mode, np.ascontiguousarray(vectors[:, :rank]), f[:rank] / s[:rank], dof, risk)


def within(W: BooleanCP, before: BooleanCP, sigma: float) -> Background | None:
    """Return the background of what W leaves in the directions of that of other atoms, whose Gram matrix is small.

    What those atoms leave along the directions is known, and the data are not read.
    """
    B = cast(Background, before.background)
    is_left = len(B.left) <= len(B.right)
    U, known = (B.left, B.right) if is_left else (B.right, B.left)
    U = U / np.linalg.norm(U, axis=0)
    rest = known.T + contracted(before, B.mode, U, is_left) - contracted(W, B.mode, U, is_left)
    values, Q = np.linalg.eigh(rest @ rest.T)
    s, Q = np.sqrt(np.maximum(values[::-1], 0.0)), Q[:, ::-1]
    f, _ = shrink_values(s, sigma, len(known), len(U))
    scale = f[f > 0] / s[f > 0]
    if not len(scale):
        return None
    short, long = U @ Q[:, : len(scale)] * scale, rest.T @ Q[:, : len(scale)]
    left, right = (short, long) if is_left else (long, short)
    return Background(W.shape, B.mode, left, right, 0.0, 0.0)


def contracted(W: BooleanCP, mode: int, U: np.ndarray, is_left: bool) -> np.ndarray:
    """Return the unfolding of W along a mode times directions U of that mode, or of the others, one in each row."""
    if W.n_atoms == 0:
        return np.zeros(1)
    if is_left:
        return W.contract(mode, U).reshape(U.shape[1], -1)
    return W.project(mode, U.T.reshape(-1, *W.shape[:mode], *W.shape[mode + 1 :])).T


def left_over(data: Storage, W: BooleanCP, sigma: float, seen: np.ndarray) -> np.ndarray:
    """Return what the atoms leave of all entries if they are fitted again to those that are seen."""
    X = data.to_array()
    if W.n_atoms and not W.is_block:
        part = make_storage(np.where(seen, X, X.dtype.type(0)), seen)
        W = polish(part, to_columns(W), max_iter=N_SWEEPS, variance=sigma**2).to_decomposition()
    return X - W.to_tensor()


def fill_in(
    R: np.ndarray,
    mask: np.ndarray,
    kind: str | int,
    sigma: float,
    before: Background | None = None,
    left_of: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Background | None:
    """Return the background of what is observed, along the mode that predicts held-out entries best; None if none.

    Held-out entries also decide how far the noise level falls from one at which nothing is left: the best one is above
    sigma where noise differs from slice to slice, as that of counts does; a lower one has to gain more than its
    standard error. `left_of` gives what atoms leave that were
    fitted without these entries, `before` the mode and the level, and the values for one more round.
    """
    if before is not None:
        level, tensor = sigma if before.level is None else before.level, before.to_tensor()
        rounds = rounds_along(R, mask, before.mode, kind, level, tensor)
        return next((found for found, _ in rounds), None)
    is_test = mask & (np.random.default_rng(SEED).random(R.shape) < HELD_OUT)
    seen = mask & ~is_test
    left = R if left_of is None else left_of(seen)
    best = (np.inf, 0, 0, 0.0)
    for mode in short_sides(DenseTensor(R)):
        places = np.flatnonzero(unfolded(is_test, mode))
        tests = np.moveaxis(left, mode, 0)[np.moveaxis(is_test, mode, 0)].astype(float)
        errors, lowest = tests**2, (float(np.sum(tests**2)), 0, mode, 0.0)
        for n, (_, B) in enumerate(rounds_along(left, seen, mode, kind, sigma), 1):
            new = (tests - B.reshape(-1)[places]) ** 2
            falls = errors - new
            if falls.sum() > max(FILLED * errors.sum(), np.sqrt(len(falls)) * falls.std()):
                gains, errors = tests**2 - new, new
                lowest = (new.sum(), n, mode, float(gains.sum() / max(np.sqrt(len(gains)) * gains.std(), SMALLEST)))
            elif n >= lowest[1] + PATIENCE:
                break
        best = min(best, lowest)
    _, n_rounds, mode, clear = best
    if clear < CLEAR:
        return None
    return last((found for found, _ in islice(rounds_along(R, mask, mode, kind, sigma), n_rounds)), None)


def unfolded(X: np.ndarray, mode: int) -> np.ndarray:
    """Return the matrix with a row for each slice along a mode."""
    return np.ascontiguousarray(np.moveaxis(X, mode, 0)).reshape(X.shape[mode], -1)


def rounds_along(
    R: np.ndarray, mask: np.ndarray, mode: int, kind: str | int, sigma: float, before: np.ndarray | None = None
) -> Iterator[tuple[Background, np.ndarray]]:
    """Yield the background along one mode, and its unfolding, after rounds of filling in; filled ones carry no noise.

    For "auto" the noise level falls from round to round, from that of the largest singular value; it is sigma if some
    values are known `before`. What is filled in goes beyond the background of a round, as in Nesterov's gradient
    method: plain rounds take many. Of the degrees of freedom those count that fall on observed entries.
    """
    known, fixed = unfolded(mask, mode), unfolded(R, mode)
    scale, level, fall, gaps = float(np.sqrt(mask.mean())), sigma, 1.0, np.flatnonzero(~known)
    filled = np.where(known, fixed, 0.0 if before is None else unfolded(before, mode)).astype(R.dtype, copy=False)
    last_one = filled.reshape(-1)[gaps].astype(float)
    if before is None and kind == "auto":
        long, short, fall = max(filled.shape), min(filled.shape), FALL
        level = fall * largest_value(DenseTensor(filled), 0) / (scale * float(noise_edge(long, short)))
    for n in range(N_FILLS):
        found = along(DenseTensor(filled), 0, kind, level * scale)[1]
        if found is None:
            return
        B = found.to_tensor()
        dof = found.degrees_of_freedom * scale**2
        yield replace(found, shape=R.shape, mode=mode, level=level, degrees_of_freedom=dof), B
        new = B.reshape(-1)
        if fall == 1 and np.linalg.norm(new[gaps] - last_one) <= FILLED * np.linalg.norm(new[gaps]):
            return
        fill_gaps(filled.reshape(-1), gaps, new, last_one, n / (n + 3))
        level = fall * level


def as_fitted(data: Storage, W: BooleanCP) -> BooleanCP:
    """Return W with the background that its atoms were fitted beside, if it has what they leave of the shrunk data.

    Judged beside that one, all atoms would confirm themselves: what is left has little noise along them.
    """
    if W.background is None or W.background.shrunk_at is None:
        return W
    return replace(W, background=find_background(data, replace(W, background=None), "auto", W.background.shrunk_at))


def judged(data: Storage, background: Background | None) -> Storage:
    """Return the data that atoms are fitted to and judged by: without the background unless it is large."""
    return data if background is None or background.is_large else without(data, background)


def without(data: Storage, background: Background | None) -> Storage:
    """Return the data without the background."""
    if background is None:
        return data
    if data.n_passes:
        return cast(LazyTensor, data).without(background)
    rest = background.to_tensor().astype(data.dtype, copy=False)
    np.subtract(data.to_array(), rest, out=rest)
    return make_storage(np.ascontiguousarray(rest), None if data.is_complete else np.asarray(data.mask))
