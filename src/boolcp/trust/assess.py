"""`assess`: all tests of trust in a decomposition, in one call."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from boolcp import checks
from boolcp.fit import loss_sweeps
from boolcp.fit.certify import judge_bits
from boolcp.fit.losses import Loss, Problem
from boolcp.memory import read_memory
from boolcp.result.atoms import BooleanCP
from boolcp.result.trust import Trust
from boolcp.storage import make_storage
from boolcp.storage.lazy import look_at, make_source
from boolcp.storage.protocol import Storage
from boolcp.trust.repeated_fits import check_reference, make_model, read_data, read_lazy, read_weights
from boolcp.trust.significance import significance, unequal_words
from boolcp.trust.stability import stability

TESTS = ("significance", "stability")
OF_THE_FIT = ("n_agree", "n_rivals", "n_asked", "is_limited")  # what a fit alone can tell, and a test keeps


def assess(
    X: Any,
    W: BooleanCP,
    *,
    tests: Sequence[str] = TESTS,
    scheme: str = "halves",
    mode: int | str = -1,
    n_runs: int = 5,
    noise: str | None = None,
    sigma: float | None = None,
    mask: Any = None,
    weights: Any = None,
    n_jobs: int = 1,
    random_state: Any = None,
    verbose: int = 0,
    **options: Any,
) -> BooleanCP:
    """Return W with measures of trust: confidence of bits, significance and stability of atoms.

    `summary`, `to_dataframe`, saved files and reports then show them, with one verdict for each atom.

    Parameters
    ----------
    X : array-like or xarray.DataArray
        The tensor that W decomposes. One that is not in memory is read in passes, if W was fitted to squares without
        weights.
    W : BooleanCP
        The decomposition.
    tests : sequence of {"significance", "stability"}
        The tests besides the confidence of bits. The first costs one fit, the second two for each run of halves.
    scheme, mode, n_runs
        As in `stability`.
    noise, sigma
        As in `significance`; by default "normal", or "poisson" if W was fitted with that loss.
    mask : array-like of bool, optional
        True where X is observed.
    weights : array-like, dict or str, optional
        The weights that W was fitted with.
    n_jobs : int
        Number of processes for the fits of `stability`.
    random_state : int, Generator or None
        Seed.
    verbose : int
        1 shows a progress bar, in a terminal.
    **options
        Parameters of BMP that W was fitted with; the number and rank of its atoms and its loss are known.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=1, random_state=0)
    >>> W = boolcp.decompose(X, 3, random_state=0)
    >>> W = boolcp.assess(X, W, n_runs=2, random_state=0)
    >>> W.trust.stability.tolist()
    [1.0, 1.0, 0.25]
    """
    for test in tests:
        checks.check_choice(test, "tests", TESTS)
    lazy = read_lazy(X, mask, options, is_loaded=weights is not None or getattr(W, "deviance", None) is not None)
    values, observed, _, dims = lazy or read_data(X, mask)
    check_reference(W, values.shape)
    if lazy:
        limit = options.get("max_memory")
        trust = judge(look_at(make_source(values, observed, limit), read_memory(limit)), W)
    else:
        weights = read_weights(make_model(W.n_atoms, options, values.shape, dims, W), X, mask, weights, dims)
        trust = judge(make_storage(values, observed, weights), W)
    own: dict[str, Any] = {"mask": mask, "weights": weights}
    noise = noise or ("poisson" if W.deviance is not None and W.deviance.loss == "poisson" else "normal")
    rngs = checks.make_generator(random_state).spawn(2)
    if "significance" in tests:
        tested = significance(X, reference=W, noise=noise, sigma=sigma, random_state=rngs[0], **own, **options)
        how = f"data thinning, {noise.replace('poisson', 'Poisson')} noise{unequal_words(tested)}"
        trust = replace(trust, p_value=tested.p_value, p_adjusted=tested.p_adjusted, tested_by=how)
    if "stability" in tests:
        runs: dict[str, Any] = {"n_runs": n_runs, "n_jobs": n_jobs, "verbose": verbose, "random_state": rngs[1]}
        found = stability(X, reference=W, scheme=scheme, mode=mode, **own, **runs, **options)
        trust = replace(trust, stability=found.recurrence, stable_over=found.over)
    kept = {} if W.trust is None else {name: getattr(W.trust, name) for name in OF_THE_FIT}
    return replace(W, trust=replace(trust, **kept))


def judge(data: Storage, W: BooleanCP) -> Trust:
    """Return what the bits of W rest on, under the loss it was fitted with."""
    if W.deviance is None:
        return judge_bits(data, W)
    loss = Loss(W.deviance.loss, W.deviance.scale)
    return loss_sweeps.judge_bits(Problem(data, loss, tuple(range(W.ndim)) if loss.is_rate else ()), W)
