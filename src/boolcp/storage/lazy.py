"""A tensor that is not in memory: every answer is the sum, or the join, of those of its slabs, in one pass."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from boolcp.checks import check_largest
from boolcp.memory import check_memory, read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.storage import slabs
from boolcp.storage.dense import Contracted, DenseTensor, Difference, from_blocks
from boolcp.storage.equations import Equations
from boolcp.storage.observed import ListedTensor
from boolcp.storage.protocol import CompleteStorage, Decide, Factors, LazyStorage, ObservedStorage, Storage, Tensor
from boolcp.storage.sketch import compress_in_passes, first_questions, is_sketched, random_block, width
from boolcp.storage.slabs import SPLIT, Answer, Question, View, run_pass
from boolcp.storage.sources import Source
from boolcp.storage.tucker import TuckerTensor, compress, first_gram, is_compressible

ROWS_PER_ATOM = 8  # rows of a slab for each atom, if that is not too many; not tuned
MAX_BLOCKS = 4  # how much larger than usual a slab may be for that; not tuned
MANY = 32  # answers of one size that may be kept; not tuned
N_LOSS = 16  # arrays as large as a slab of counts: entries, indices by mode, means, their weights; not tuned
SMALL = 200  # rows of a Gram matrix that helps to identify the data; not tuned
RECHUNK = (
    "Rechunk X to be short along mode {mode} and whole along the others, as in X.rechunk({{{mode}: {rows}}}), or store "
    "it as zarr; or raise max_memory."
)


@dataclass
class Passes:
    """A count of passes over the data, shared by all tensors that are made of it."""

    count: int = 0


@dataclass(frozen=True)
class Facts:
    """Results of the first pass: |X|^2, the observed entries of each slice, Gram matrices; and the number of passes.

    `grams` holds X_n X_n' by mode, and X_n'X_n by ("columns", mode); `sketches` a block Q and X_n X_n'Q by mode. With
    weights, it also has the sum of those of each slice, and about their median.
    """

    squared_norm: float
    n_observed_along: list[np.ndarray]
    grams: dict[Any, np.ndarray]
    passes: Passes
    sketches: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    weights_along: list[np.ndarray] = field(default_factory=list)
    median: float = 1.0


class SlabTensor(Tensor):
    """A tensor that is read in slabs, one pass over all of them for each question."""

    def __init__(
        self, source: Source, facts: Facts, limit: int, view: View | None = None, shape: Sequence[int] | None = None
    ) -> None:
        self.source, self.facts, self.limit = source, facts, limit
        self.shape, self.dtype = tuple(source.shape if shape is None else shape), source.dtype
        self.view = View() if view is None else view
        self.wanted: tuple[int, ...] = ()  # Gram matrices that the next pass along a different mode brings
        self._grams = facts.grams
        self._contracted: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # (Z, answer) of the last contraction by mode
        self._products: list[tuple[Factors, Factors]] = []  # (factors, MTTKRP of each mode) of the last questions

    @cached_property
    def squared_norm(self) -> float:
        """|X|^2 over the observed entries."""
        return self.facts.squared_norm

    @property
    def n_passes(self) -> int:
        """Return the number of passes made over the data so far."""
        return self.facts.passes.count

    def direction(self, avoid: int | None = None, rather_not: int | None = None) -> int:
        """Return the mode along which it is cut: the longest that is neither the one to avoid nor `rather_not`.

        Modes along which a file would be read in short pieces are the last resort. Modes along which slabs are
        contracted before a question stay whole.
        """
        whole = {avoid, *(n for n, _ in self.view.bases)}
        modes = [n for n in range(self.ndim) if n not in whole] or list(range(self.ndim))
        return min(modes, key=lambda n: (self.source.is_scattered(n), n == rather_not, -self.source.shape[n]))

    def _fits(self, mode: int) -> bool:
        """Return True if slabs along `mode` can be read within the limit."""
        return held(self.source, mode) <= self.limit

    def _pass(
        self, mode: int, question: Question, constants: Any = (), along: Any = (), view: View | None = None
    ) -> Answer:
        check_slabs(self.source, mode, self.limit)
        self.facts.passes.count += 1
        return run_pass(self.source, mode, view or self.view, question, constants, along)

    def ask(
        self, mode: int, question: Question, constants: Sequence[Any], along: Sequence[np.ndarray], kind: str = ""
    ) -> Answer:
        """Return the sums and rows of a question to the slabs along a mode, as they are or as a different kind."""
        return self._pass(mode, question, constants, along, replace(self.view, kind=kind) if kind else None)

    def gram(self, mode: int) -> np.ndarray:
        """Return X_n X_n' (d_n, d_n), computed once."""
        self.ask_grams([mode])
        return self._grams[mode]

    def ask_grams(self, modes: Sequence[int]) -> None:
        """Compute Gram matrices that are not known, all that can share a pass in one."""
        while missing := [n for n in modes if n not in self._grams]:
            cut = self.direction(avoid=missing[0])
            missing = [n for n in missing if n != cut]
            self._grams |= dict(zip(missing, self._pass(cut, slabs.ask_grams, (missing,))[0], strict=True))

    @property
    def known_grams(self) -> list[int]:
        """Return the modes whose Gram matrices are known."""
        return [n for n in range(self.ndim) if n in self._grams]

    def column_gram(self, mode: int) -> np.ndarray:
        """Return X_n'X_n (c_n, c_n) of a mode with few columns, computed once."""
        if ("columns", mode) not in self._grams:
            self._grams["columns", mode] = self._pass(mode, slabs.ask_column_gram, (mode,))[0][0]
        return self._grams["columns", mode]

    def has_gram(self, mode: int) -> bool:
        """Return True if the Gram matrix of a mode is known, or can be computed within the limit."""
        return mode in self._grams or self._fits(self.direction(avoid=mode))

    def contract(self, mode: int, Z: np.ndarray) -> np.ndarray:
        """Return sum_i X[.., i, ..] Z[i, k], (K, other modes); the last answer for each mode is kept if it is small."""
        Z = np.asarray(Z, dtype=self.dtype)
        if mode in self._contracted and np.array_equal(self._contracted[mode][0], Z):
            return self._contracted[mode][1]
        blocks = self._contract(mode, Z, [])
        if MANY * blocks.nbytes <= self.limit:
            self._contracted[mode] = Z, blocks
        return blocks

    def _contract(self, mode: int, Z: np.ndarray, pending: list[int]) -> np.ndarray:
        """Return a contraction; the pass brings the pending Gram matrices."""
        avoid = pending[0] if pending else None
        # answers of slabs along a different mode are joined; those along `mode` are summed, each as large as the sum
        cuts = [cut for cut in (self.direction(avoid, mode), self.direction(avoid)) if self._fits(cut)]
        pending, cut = (pending, cuts[0]) if cuts and pending else ([], self.direction())
        pending = [n for n in pending if n != cut]
        if mode == cut:
            sums, _ = self._pass(cut, slabs.ask_contract_cut, (mode, pending), (Z,))
            blocks, grams = sums[0], sums[1:]
        else:
            at = 1 + cut - (cut > mode)
            grams, rows = self._pass(cut, slabs.ask_contract, (mode, Z, at, pending))
            blocks = np.moveaxis(rows[0], 0, at)
        self._grams |= dict(zip(pending, grams, strict=True))
        return blocks

    def reduced(self, mode: int, U: np.ndarray) -> CompleteStorage:
        """Return the tensor contracted with the columns of U along one mode, which stays in its place.

        It is in memory if it takes at most a quarter of the limit, or if only one mode is left to cut along; then the
        pass brings the Gram matrices still wanted.
        """
        shape = tuple(U.shape[1] if n == mode else d for n, d in enumerate(self.shape))
        is_last = mode == self.direction() or self.ndim - len(self.view.bases) <= 2
        if is_last or 4 * np.prod(shape, dtype=float) * self.dtype.itemsize <= self.limit:
            pending = [n for n in self.wanted if n not in self._grams]
            blocks = self._contract(mode, np.asarray(U, dtype=self.dtype), pending)
            return from_blocks(blocks, mode)
        view = replace(self.view, bases=(*self.view.bases, (mode, np.asarray(U, dtype=self.dtype))))
        return LazyTensor(self.source, replace(self.facts, grams={}), self.limit, view, shape)

    def project(self, mode: int, blocks: np.ndarray) -> np.ndarray:
        """Return X_n vec(V_k), (d_n, K)."""
        blocks = np.asarray(blocks, dtype=self.dtype)
        cut = self.direction()
        if mode == cut:
            return self._pass(cut, slabs.ask_project_cut, (mode, blocks))[1][0]
        at = 1 + cut - (cut > mode)
        return self._pass(cut, slabs.ask_project, (mode, at), (np.moveaxis(blocks, at, 0),))[0][0]

    def mttkrp(self, factors: Factors, mode: int) -> np.ndarray:
        """Return X_n times the Khatri-Rao product of the other factors, (d_n, K).

        One pass answers for all modes, and the answers for the last factors are kept.
        """
        self.ask_ahead([factors])
        products = self._known(factors)
        assert products is not None
        return products[mode]

    def _known(self, factors: Factors) -> Factors | None:
        """Return the MTTKRP of all modes for factors that were asked for last, else None."""
        for known, products in self._products:
            if len(known) == len(factors) and all(map(np.array_equal, known, factors)):
                return products
        return None

    def ask_ahead(self, groups: Sequence[Factors]) -> None:
        """Compute the MTTKRP of all modes for several groups of factors in one pass, before it is asked for."""
        if all(self._known(factors) is not None for factors in groups):
            return
        cut = self.direction()
        joint = [np.hstack(columns) for columns in zip(*groups, strict=True)]
        others = [None if n == cut else A for n, A in enumerate(joint)]
        sums, rows = self._pass(cut, slabs.ask_mttkrp, (cut, others), (joint[cut],))
        products = [*sums[:cut], rows[0], *sums[cut:]]
        ends = np.cumsum([factors[0].shape[1] for factors in groups])[:-1]
        parts = zip(*(np.split(P, ends, axis=1) for P in products), strict=True)
        self._products = [([np.array(A) for A in factors], part) for factors, part in zip(groups, parts, strict=True)]

    @cached_property
    def entry_range(self) -> tuple[float, float, float]:
        """The smallest and the largest observed entry, and their mean, from one pass."""
        sums, (least, most) = self.ask(self.direction(), slabs.ask_range, (), ())
        return float(least.min()), float(most.max()), float(sums[0] / sums[1])

    def to_array(self) -> np.ndarray:
        """Return all entries in memory, zero where they are missing."""
        cut = self.direction()
        return np.moveaxis(self._pass(cut, slabs.ask_entries, (cut,))[1][0], 0, cut)

    def describe(self) -> dict[str, Any]:
        """Return shape, dtype, |X|^2 and small Gram matrices, as far as they are known: no pass is made."""
        grams = {n: G for n, G in self.facts.grams.items() if isinstance(n, int) and len(G) <= SMALL}
        known = {"shape": list(self.shape), "dtype": str(self.dtype), "|X|^2": float(self.facts.squared_norm)}
        return known | {f"Gram matrix of mode {n}": np.asarray(G, dtype=float).tolist() for n, G in grams.items()}


class LazyTensor(SlabTensor, CompleteStorage, LazyStorage):
    """A complete tensor that is read in slabs."""

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, Contracted]:
        """Return the factor A = decide(P, current) of one mode, and X contracted with it.

        Along the mode of the cut this is done slab by slab: the rows just decided are used at once.
        """
        if mode != self.direction():
            A = decide(self.mttkrp(factors, mode), current=factors[mode])
            return A, Contracted(self.contract(mode, A), mode)
        others = [None if n == mode else A for n, A in enumerate(factors)]
        sums, rows = self._pass(mode, slabs.ask_update, (mode, others, decide), (factors[mode],))
        return rows[0], Contracted(sums[0], mode)

    def compressed(self, rank: int) -> Storage:
        """Return the tensor on at most `rank` directions of each mode; itself if that is not much smaller."""
        if not (is_compressible(self.shape, rank) and is_sketched(self.shape, rank, self.direction())):
            return compress(self, rank)
        return compress_in_passes(self, rank)

    def sketches(self, blocks: Mapping[int, np.ndarray]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return each block Q and X_n X_n'Q by mode, with a pass if the first one has not brought them."""
        known = self.facts.sketches
        if all(n in known and np.array_equal(known[n][0], Q) for n, Q in blocks.items()):
            return {n: known[n] for n in blocks}
        found = self._pass(self.direction(), slabs.ask_sketches, (blocks,))[0]
        return {n: (Q, CQ) for (n, Q), CQ in zip(blocks.items(), found, strict=True)}

    def core_along(
        self, bases: Mapping[int, np.ndarray], blocks: Mapping[int, np.ndarray]
    ) -> tuple[DenseTensor, dict[int, tuple[np.ndarray, np.ndarray]], dict[int, float]]:
        """Return the tensor contracted with bases of all long modes but one, and X_n X_n'Q of blocks Q by mode.

        There X is contracted already with the bases of modes before n, and the columns that this leaves are counted.
        The pass brings the Gram matrices still wanted: for that of the mode of the cut it is cut along a different one.
        """
        pending = [n for n in self.wanted if n not in self._grams]
        cut = self.direction(avoid=pending[0] if pending else None)
        if not self._fits(cut):
            pending, cut = [], self.direction()
        pending = [n for n in pending if n != cut]
        blocks = {n: Q for n, Q in blocks.items() if n != cut}
        others = {n: None if n == cut else np.asarray(U, dtype=self.dtype) for n, U in bases.items()}
        along = (np.asarray(bases[cut], dtype=self.dtype),) if cut in bases else ()
        sums, rows = self._pass(cut, slabs.ask_core, (cut, others, pending, blocks), along)
        core = sums[0] if cut in bases else np.moveaxis(rows[0], 0, cut)
        sums = sums[1:] if cut in bases else sums
        self._grams |= dict(zip(pending, sums[: len(pending)], strict=True))
        found = zip(blocks.items(), sums[len(pending) :], strict=True)
        n_columns, size = {}, float(np.prod(self.shape, dtype=float))
        for n in slabs.core_order(cut, bases, blocks):
            n_columns[n] = size / self.shape[n]
            size = n_columns[n] * bases[n].shape[1]
        return DenseTensor(np.ascontiguousarray(core)), {n: (Q, CQ) for (n, Q), CQ in found}, n_columns

    def residual(self, W: BooleanCP) -> Difference:
        """Return the tensor X - W."""
        return Difference(self, W)

    def ask_residual_grams(self, W: BooleanCP, weights: Mapping[int, np.ndarray]) -> None:
        """Compute the Gram matrices of X from which those of residuals follow, those that can share a pass in one."""
        self.ask_grams(list(weights))


class NearTensor(LazyTensor):
    """A complete tensor near W: X with X - W cut off at a size, and W where X is missing.

    Its squares majorize Huber's loss of X, or its squares over observed entries, and touch them at W. `before` is
    |X - W|^2 of it, known after an update.
    """

    def __init__(self, data: SlabTensor, W: BooleanCP, size: float = np.inf) -> None:
        facts = replace(data.facts, grams={}, sketches={})
        super().__init__(data.source, facts, data.limit, View("near", size, W))
        self.W, self.before = W, np.inf

    @cached_property
    def squared_norm(self) -> float:
        """|X|^2, computed once."""
        return float(self._pass(self.direction(), slabs.ask_norm)[0][0])

    def update(self, factors: Factors, mode: int, decide: Decide) -> tuple[np.ndarray, Contracted]:
        """Return the factor A = decide(P, current) of one mode, and X contracted with it; W has these factors."""
        if mode != self.direction():
            A, contracted = super().update(factors, mode, decide)
            inner = float(np.sum(self.mttkrp(factors, mode) * factors[mode]))
        else:
            others = [None if n == mode else B for n, B in enumerate(factors)]
            sums, rows = self._pass(mode, slabs.ask_update, (mode, others, decide, True), (factors[mode],))
            blocks, self.squared_norm, inner = sums
            A, contracted = rows[0], Contracted(blocks, mode)
        self.before = self.squared_norm - 2 * inner + self.W.squared_norm
        return A, contracted


class ObservedLazyTensor(SlabTensor, ObservedStorage, LazyStorage):
    """A tensor with missing entries that is read in slabs, each of them a masked array."""

    def __init__(self, source: Source, facts: Facts, limit: int) -> None:
        super().__init__(source, facts, limit, View("observed"))
        self.is_weighted = source.weights is not None
        self._equations: list[Equations] = []  # of the last pass that brought those of all modes
        self._pending: list[Factors] = []  # factors for which the next such pass brings equations
        self._grams_of: BooleanCP | None = None  # Gram matrices of its residuals are known
        self._residual_grams: dict[tuple[int, bytes], list[np.ndarray]] = {}  # by mode and weights

    @property
    def n_observed(self) -> int:
        """Return the number of observed entries."""
        return int(self.facts.n_observed_along[0].sum())

    @property
    def mask(self) -> np.ndarray:
        """Return an array of the shape of X, True where it is observed; it takes a pass."""
        return self.observed().to_array().astype(bool)

    def describe(self) -> dict[str, Any]:
        """Return shape, dtype, the number of observed entries, |X|^2 and small Gram matrices; no pass is made."""
        weights = [A.tolist() for A in self.facts.weights_along if len(A) <= SMALL]
        known = super().describe() | {"number of observed entries": self.n_observed}
        return known | ({"weights": weights} if self.is_weighted else {})

    def n_observed_along(self, mode: int) -> np.ndarray:
        """Return the number of observed entries in each slice along `mode`, (d_n,)."""
        return self.facts.n_observed_along[mode]

    def normal_equations(self, factors: Factors, mode: int) -> tuple[np.ndarray, np.ndarray]:
        """Return H (d_n, K, K) and P (d_n, K): row i of the factor that fits best solves H_i a = p_i."""
        for known in self._equations:
            if (found := known.of(factors, mode)) is not None:
                return found
        cut = self.direction()
        others = [None if n == cut else A for n, A in enumerate(factors)]
        sums, rows = self._pass(cut, slabs.ask_equations, (cut, mode, others), (factors[cut],))
        H, P = rows if mode == cut else sums
        return H, P

    def ask_with_update(self, factors: Factors) -> None:
        """Let the next pass of `update` bring the equations of mode 0 for further factors."""
        self._pending = [*self._pending, factors]

    def known_near(self, factors: Factors) -> Equations | None:
        """Return the equations that the last pass of `update` ended with, if these are its factors."""
        return next((known for known in self._equations if known.is_for(factors)), None)

    def update(self, factors: Factors, decide: Callable[..., np.ndarray]) -> list[np.ndarray]:
        """Return the factors with that of the mode of the cut decided slab by slab, by decide(H, P, current=rows).

        The pass brings the normal equations of all modes for the factors that it returns.
        """
        cut, groups = self.direction(), [[np.asarray(A) for A in each] for each in self._pending]
        others = [None if n == cut else A for n, A in enumerate(factors)]
        pending = [[None if n == cut else A for n, A in enumerate(each)] for each in groups]
        along = (factors[cut], *(each[cut] for each in groups))
        sums, rows = self._pass(cut, slabs.ask_update_observed, (cut, others, decide, pending), along)
        A, H, P, *joined = rows
        blocks, grams, more = sums[0], list(sums[1 : self.ndim]), list(sums[self.ndim :])
        found = [A if n == cut else np.array(B) for n, B in enumerate(factors)]
        contracted = Contracted(blocks, cut)
        grams.insert(cut, H)
        products = {n: P if n == cut else np.asarray(contracted.mttkrp(found, n), float) for n in range(self.ndim)}
        size = np.prod(self.shape, dtype=float)
        counts = self.facts.weights_along if self.is_weighted else self.facts.n_observed_along
        shares = [counts[n] * d / size for n, d in enumerate(self.shape)]
        kept = [known for known in self._equations if known.contracted is None]
        self._equations = [Equations(found, dict(enumerate(grams)), products, shares, contracted), *kept]
        parts = iter(joined if cut == 0 else more)
        self._equations += [Equations(each, {0: next(parts)}, {0: next(parts)}, shares) for each in groups]
        self._pending = []
        return found

    def losses(self, estimates: Sequence[BooleanCP]) -> list[float]:
        """Return |X - W|^2 over observed entries for several estimates, in one pass."""
        cut = self.direction()
        return list(self._pass(cut, slabs.ask_losses, (cut, estimates), (np.arange(self.shape[cut]),))[0])

    def imputed(self, W: BooleanCP, bases: Sequence[np.ndarray]) -> TuckerTensor:
        """Return the complete tensor W + (X - W) / share on given bases, with the share of observed entries.

        Where entries are missing at random it is X in the mean, with less noise than zeros leave the closer W is to X.
        """
        cut, scale = self.direction(), np.prod(self.shape, dtype=float) / self.n_observed
        view = View("imputed", float(scale), W, median=self.facts.median)
        others = {n: None if n == cut else np.asarray(U, dtype=self.dtype) for n, U in enumerate(bases)}
        along = (np.asarray(bases[cut], dtype=self.dtype),)
        core, norm = self._pass(cut, slabs.ask_imputed_core, (cut, others), along, view)[0]
        return TuckerTensor(DenseTensor(np.ascontiguousarray(core)), list(bases), float(norm))

    def listed(self) -> ListedTensor:
        """Return the observed entries in memory, after one pass."""
        cut = self.direction()
        indices, values, *weights = self._pass(cut, slabs.ask_observed, (cut,), (np.arange(self.shape[cut]),))[1]
        order = np.lexsort(indices.T[::-1])
        return ListedTensor(indices[order], values[order], self.shape, weights[0][order] if weights else None)

    def has_gram(self, mode: int) -> bool:
        """Return True if the Gram matrix of a residual along a mode can be computed within the limit."""
        return self._fits(self.direction(avoid=mode))

    def residual_grams(self, W: BooleanCP, weights: np.ndarray, mode: int) -> Iterator[np.ndarray]:
        """Yield R_n R_n' of R = X - sum_k c_k M_k for each row c of `weights`, as many in one pass as fit in memory."""
        key, step, cut = (mode, weights.tobytes()), self._n_grams(mode), self.direction(avoid=mode)
        if self._grams_of is W and key in self._residual_grams:
            yield from self._residual_grams.pop(key)
            return
        for start in range(0, len(weights), step):
            constants = (cut, W, {mode: weights[start : start + step]})
            yield from self._pass(cut, slabs.ask_residual_grams, constants, (np.arange(self.shape[cut]),))[0]

    def _n_grams(self, mode: int) -> int:
        """Return how many Gram matrices of a mode one pass may bring."""
        return max(1, int(self.limit // (32 * (n_threads() + SPLIT) * self.shape[mode] ** 2)))

    def ask_residual_grams(self, W: BooleanCP, weights: Mapping[int, np.ndarray]) -> None:
        """Compute the Gram matrices of residuals along several modes, those that can share a pass in one."""
        cuts: dict[int, dict[int, np.ndarray]] = {}
        for mode, rows in weights.items():
            cuts.setdefault(self.direction(avoid=mode), {})[mode] = rows
        self._grams_of, self._residual_grams = W, {}
        for cut, group in cuts.items():
            if len(group) < 2 or sum(len(rows) / self._n_grams(mode) for mode, rows in group.items()) > 1:
                continue
            grams = iter(self._pass(cut, slabs.ask_residual_grams, (cut, W, group), (np.arange(self.shape[cut]),))[0])
            for mode, rows in group.items():
                self._residual_grams[mode, rows.tobytes()] = [next(grams) for _ in rows]

    def residual(self, W: BooleanCP) -> SlabTensor:
        """Return the lazy tensor of X - W on the observed entries."""
        return self if W.n_atoms == 0 else self._derived("residual", W)

    def observed(self) -> "DerivedTensor":
        """Return the lazy tensor of ones at the observed entries."""
        return self._derived("mask")

    def restrict(self, W: BooleanCP) -> "DerivedTensor":
        """Return the lazy tensor of W at the observed entries."""
        return self._derived("restricted", W)

    def filled(self) -> LazyTensor:
        """Return the complete lazy tensor with zeros at the missing entries and the others scaled up to compensate.

        With weights its norm takes a pass.
        """
        scale = float(self.dtype.type(np.prod(self.shape, dtype=float) / self.n_observed))
        if self.is_weighted:
            view = View("zeros", scale, median=self.facts.median)
            facts = replace(self.facts, grams={}, sketches={})
            norm = self._pass(self.direction(), slabs.ask_norm, view=view)[0][0]
            return LazyTensor(self.source, replace(facts, squared_norm=float(norm)), self.limit, view)
        grams = {key: scale**2 * G for key, G in self._grams.items()}
        sketches = {n: (Q, scale**2 * CQ) for n, (Q, CQ) in self.facts.sketches.items()}
        facts = replace(self.facts, squared_norm=scale**2 * self.squared_norm, grams=grams, sketches=sketches)
        return LazyTensor(self.source, facts, self.limit, View("zeros", scale))

    def _derived(self, kind: str, W: BooleanCP | None = None) -> "DerivedTensor":
        return DerivedTensor(self.source, replace(self.facts, grams={}), self.limit, View(kind, W=W))


class DerivedTensor(SlabTensor):
    """A lazy tensor on the observed entries of another one; its norm takes a pass when it is asked for."""

    is_complete = False

    @cached_property
    def squared_norm(self) -> float:
        """|X|^2, computed once."""
        return float(self._pass(self.direction(), slabs.ask_norm)[0][0])


# the door


def look_at(
    source: Source, limit: int, *, rank: int | None = None, wanted: Sequence[int] = (), passes: Passes | None = None
) -> LazyTensor | ObservedLazyTensor:
    """Return the lazy storage of a Source after one pass over it.

    Parameters
    ----------
    source : Source
        The lazy array.
    limit : int
        Bytes of memory that may be used.
    rank : int, optional
        The number of directions of each mode that a core will have: the pass brings what leads to them.
    wanted : sequence of int
        Modes whose Gram matrices will be needed.
    passes : Passes, optional
        The count of passes that these are added to.
    """
    raw = LazyTensor(source, Facts(0.0, [], {}, passes or Passes()), limit)
    cut = raw.direction()
    if source.weights is not None:
        return look_at_weighted(raw, wanted)
    modes: list[int] = []
    blocks: dict[int, np.ndarray] = {}
    if rank is not None and is_sketched(source.shape, rank, cut):
        modes, sketched = first_questions(source.shape, rank, cut, wanted)
        blocks = {n: random_block(source.shape[n], rank, n) for n in sketched}
    elif rank is not None and (first := first_gram(source.shape, rank)) is not None:
        cut, modes = raw.direction(avoid=first), [first]  # the tensor is compressed along its shortest mode first
    modes = [n for n in dict.fromkeys([*modes, *wanted]) if n != cut]
    (norm, n_infinite, *counts, grams, found), rows = raw._pass(cut, slabs.ask_first, (cut, modes, blocks))
    check_largest(rows[1].max(), source.dtype, n_infinite)
    counts = [*counts[:cut], rows[0], *counts[cut:]]
    sketches = {n: (Q, CQ) for (n, Q), CQ in zip(blocks.items(), found, strict=True)}
    facts = Facts(float(norm), counts, dict(zip(modes, grams, strict=True)), raw.facts.passes, sketches)
    n_observed = int(rows[0].sum())
    if n_observed == 0:
        raise ValueError("X is NaN (or masked) everywhere: no entry is observed.")
    is_complete = n_observed == np.prod(source.shape, dtype=np.int64)
    kind = LazyTensor if is_complete else ObservedLazyTensor
    data = kind(source, facts, limit)
    data.wanted = tuple(wanted)
    return data


def look_at_weighted(raw: LazyTensor, wanted: Sequence[int]) -> ObservedLazyTensor:
    """Return the lazy storage of a Source with weights after one pass over it."""
    cut, ndim = raw.direction(), raw.ndim
    raw.view = View("observed")
    sums, (largest, count, weight, medians) = raw._pass(cut, slabs.ask_first_weighted, (cut,))
    norm, n_infinite, *along = sums
    check_largest(largest.max(), raw.dtype, n_infinite)
    if not count.any():
        raise ValueError("weights is zero at every observed entry of X: no entry counts.")
    counts, weights = along[: ndim - 1], along[ndim - 1 :]
    counts, weights = [*counts[:cut], count, *counts[cut:]], [*weights[:cut], weight, *weights[cut:]]
    values, sizes = medians[medians[:, 1] > 0].T
    order = np.argsort(values)
    middle = int(np.searchsorted(np.cumsum(sizes[order]), sizes.sum() / 2))
    facts = Facts(float(norm), counts, {}, raw.facts.passes, {}, weights, float(values[order][middle]))
    data = ObservedLazyTensor(raw.source, facts, raw.limit)
    data.wanted = tuple(wanted)
    return data


def n_threads() -> int:
    """Return the number of slabs that this machine processes at a time."""
    import dask
    from dask.system import CPU_COUNT

    return int(dask.config.get("num_workers", None) or CPU_COUNT)


def held(source: Source, mode: int) -> int:
    """Return the bytes of the slabs along `mode` that are in memory at a time, with copies and their chunks."""
    slab = source.thickness(mode) * (source.nbytes // source.shape[mode])
    return n_threads() * (2 * source.held(mode) + (source.n_copies - 2) * slab)


def check_slabs(source: Source, mode: int, limit: int) -> None:
    """Raise a MemoryError if slabs along `mode` cannot be read within the limit."""
    advice = RECHUNK.format(mode=mode, rows=source.thickness(mode))
    check_memory({f"slabs along mode {mode}": held(source, mode)}, limit, advice)


def check_fit(
    source: Source,
    limit: int,
    n_atoms: int,
    rank: int,
    wanted: Sequence[int] = (),
    *,
    is_complete: bool = True,
    more: Mapping[str, float] | None = None,
) -> None:
    """Raise a MemoryError if a fit of `n_atoms` atoms, with `rank` directions per mode, does not fit in the limit.

    `more` is what else the model needs, in bytes.
    """
    sizes, item = np.array(source.shape, dtype=float), source.dtype.itemsize
    cut, n_copies = int(np.argmax(sizes)), n_threads() + SPLIT
    ranks = np.minimum(sizes, width(rank) if is_sketched(source.shape, rank, cut) else rank)
    others = float(np.prod(np.delete(sizes, cut)))
    short = 2 * float(np.prod(np.delete(ranks, cut))) * sizes[cut]
    needs = {
        f"slabs along mode {cut}": held(source, cut),
        "bases and factors": 8 * float(np.sum(sizes * (ranks + 8 * n_atoms))),
        "the tensor compressed along its shorter modes": item * short,
        "Gram matrices": 8 * n_copies * float(sum(sizes[n] ** 2 for n in wanted)),
    }
    needs["the tensor contracted with a factor"] = n_copies * n_atoms * others * item
    if not is_complete:
        needs["normal equations of the rows"] = 16 * float(sizes.max()) * n_atoms**2
    needs |= more or {}
    advice = "Ask for fewer atoms (n_atoms), raise max_memory, or use a machine or a cluster with more memory."
    if 2 * needs["Gram matrices"] > sum(needs.values()) and len(wanted) > 1:
        advice = "Most Gram matrices serve the certificates: certify=False needs the smallest one only. " + advice
    check_memory(needs, limit, advice)


def make_source(
    X: Any,
    mask: Any = None,
    max_memory: float | str | None = None,
    n_atoms: int = 0,
    weights: Any = None,
    *,
    is_counted: bool = False,
) -> Source:
    """Return the Source of a lazy array, with slabs small enough for `max_memory`.

    A slab has several rows for each atom if possible, so that the sums over the slabs are smaller than the slabs. One
    of counts (`is_counted`) is copied more often, since their loss is not one of squares.
    """
    source = Source(X, mask, weights)
    source.n_copies = N_LOSS if is_counted else source.n_copies
    row = source.nbytes // max(source.shape)
    wanted = min(max(source.block, ROWS_PER_ATOM * n_atoms * row), MAX_BLOCKS * source.block)
    least = source.block if max_memory is None else 1
    share = 2 * N_LOSS if is_counted else 8 if weights is None else 16
    source.block = min(wanted, max(least, read_memory(max_memory) // (share * n_threads())))
    return source
