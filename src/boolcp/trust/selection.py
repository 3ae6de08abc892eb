"""The number of atoms: the largest one whose atoms all come back in fits to parts of the data."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from boolcp import checks
from boolcp.checks import BoolcpWarning
from boolcp.trust.repeated_fits import fit_part, prepare, run_all, table_text, unit_mode
from boolcp.trust.replication import OFTEN, compare, draw_parts, fits_text


@dataclass(frozen=True, eq=False)
class Selection:
    """How many atoms come back for each number of atoms, and the number chosen.

    Attributes
    ----------
    n_atoms : int
        The choice: the largest number all of whose atoms replicate.
    shares : tuple of ndarray
        For 1, 2, .. atoms the share of the fits to parts of the data in which each atom comes back.
    parts : str
        Which fits.

    Examples
    --------
    >>> shares = (np.array([1.0]), np.array([1.0, 0.25]))
    >>> print(boolcp.Selection(1, shares, "8 fits to halves of the trials").summary())
    atoms that come back in 8 fits to halves of the trials
    atoms  come back  least often
        1          1        100 %  <- chosen
        2          1         25 %
    """

    n_atoms: int
    shares: tuple[np.ndarray, ...]
    parts: str

    @property
    def n_replicated(self) -> list[int]:
        """Return how many atoms come back for 1, 2, .. atoms."""
        return [int((share >= OFTEN).sum()) for share in self.shares]

    @property
    def is_at_edge(self) -> bool:
        """Return True if the choice is the largest number tried: a larger one may replicate as well."""
        return self.n_atoms == len(self.shares)

    def summary(self) -> str:
        """Return the table as text: for each number of atoms how many come back, and the least share of the fits."""
        rows = [["atoms", "come back", "least often"]]
        for k, (share, n) in enumerate(zip(self.shares, self.n_replicated, strict=True), start=1):
            rows.append([str(k), str(n), f"{100 * share.min(initial=1.0):.0f} %"])
        lines = table_text(f"atoms that come back in {self.parts}", rows).split("\n")
        if self.n_atoms:
            lines[1 + self.n_atoms] += "  <- chosen"
        edge = ["The choice is the largest number tried: a larger one may be better."] if self.is_at_edge else []
        return "\n".join([*lines, *edge])

    def __repr__(self) -> str:
        return f"Selection(n_atoms={self.n_atoms} of at most {len(self.shares)}, {self.parts})"


def select_n_atoms(
    X: Any,
    max_atoms: int = 10,
    *,
    mode: int | str | None = None,
    n_parts: int = 8,
    mask: Any = None,
    weights: Any = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
    **options: Any,
) -> Selection:
    """Return the largest number of atoms that all come back in fits to parts of the data, as a Selection.

    One fit to all data and to each part with `max_atoms` atoms is enough: its path has the estimates with fewer.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor, in memory.
    max_atoms : int
        Largest number of atoms tried. A warning says if it is chosen.
    mode, n_parts, mask, weights, n_jobs, random_state, verbose, **options
        As in `replication`.

    Examples
    --------
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=0.5, random_state=0)
    >>> boolcp.select_n_atoms(X, 4, n_parts=4, random_state=0).n_atoms
    2
    """
    checks.check_integer(max_atoms, "max_atoms", 1)
    checks.check_integer(n_parts, "n_parts", 1)
    rng, seed, other = checks.make_generator(random_state).spawn(3)
    data, W = prepare(select_n_atoms, X, int(max_atoms), options, mask=mask, weights=weights, seed=seed)
    data = data._replace(model=data.model.set_params(n_atoms=int(max_atoms)))
    at = unit_mode(W, mode)
    draws = draw_parts(data.values.shape[at], "halves", n_parts, None, rng)
    tasks: list[Any] = [(data, at, None, other), *((data, at, places, one) for places, one in draws)]
    whole, *paths = [model.path_ for model in run_all(fit_part, tasks, n_jobs, verbose)]
    over = fits_text(n_parts, "halves", W, at)
    shares = []
    for k in range(1, len(whole)):
        parts = [path[min(k, len(path) - 1)] for path in paths]
        shares.append(compare(data, whole[k], at, [places for places, _ in draws], parts, over).share)
    chosen = max((k for k, share in enumerate(shares, start=1) if (share >= OFTEN).all()), default=0)
    selection = Selection(chosen, tuple(shares), over)
    if selection.is_at_edge and len(shares) == max_atoms:
        text = f"The number of atoms chosen is the largest one tried, {max_atoms}: try a larger max_atoms."
        warnings.warn(text, BoolcpWarning, stacklevel=2)
    return selection
