"""`assess`: all tests of trust in a decomposition, in one call."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from boolcp import checks
from boolcp.fit import certify, losses
from boolcp.result.atoms import BooleanCP
from boolcp.storage import make_storage
from boolcp.storage.weighted import SQUARES, Loss
from boolcp.trust.repeated_fits import prepare, without_mean
from boolcp.trust.significance import significance
from boolcp.trust.stability import stability

TESTS = ("significance", "stability")
OF_THE_FIT = ("n_agree", "n_rivals", "n_asked", "is_limited")  # known from the fit alone: a test keeps them


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
        The tensor that W decomposes, in memory.
    W : BooleanCP
        The decomposition.
    tests : sequence of {"significance", "stability"}
        The tests besides the confidence of bits. The first costs one fit, the second two for each run of halves.
    scheme, mode, n_runs
        As in `stability`.
    noise, sigma
        As in `significance`; by default "normal", or "poisson" if W was fitted with that loss.
    mask, weights, n_jobs, random_state, verbose, **options
        As in `select_n_atoms`; parameters of BMP are by default those that W was fitted with.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((20, 25, 30), 2, noise=1, random_state=0)
    >>> W = boolcp.decompose(X, 3, random_state=0)
    >>> W = boolcp.assess(X, W, n_runs=2, random_state=0)
    >>> W.trust.stability.tolist()
    [1.0, 1.0, 0.25]
    """
    for test in (tests,) if isinstance(tests, str) else tests:
        checks.check_choice(test, "tests", TESTS)
    data = prepare(assess, X, 0, options, mask=mask, weights=weights, W=W)
    values, atoms = without_mean(data.values, W)
    loss = SQUARES if W.deviance is None else Loss(W.deviance.loss, W.deviance.scale)
    storage = make_storage(values, data.observed, data.weights, loss)
    judge: Any = certify.judge_bits if W.deviance is None else losses.judge
    trust = judge(storage, atoms)
    given: dict[str, Any] = {"reference": W, "mask": mask, "weights": weights, **options}
    noise = noise or ("poisson" if data.model.loss == "poisson" else "normal")
    rngs = checks.make_generator(random_state).spawn(2)
    if "significance" in tests:
        tested = significance(X, noise=noise, sigma=sigma, random_state=rngs[0], **given)
        how = f"data thinning, {noise.replace('poisson', 'Poisson')} noise{tested.unequal_words}"
        trust = replace(trust, p_value=tested.p_value, p_adjusted=tested.p_adjusted, tested_by=how)
    if "stability" in tests:
        given |= {"n_runs": n_runs, "n_jobs": n_jobs, "verbose": verbose, "random_state": rngs[1]}
        found = stability(X, scheme=scheme, mode=mode, **given)
        trust = replace(trust, stability=found.recurrence, stable_over=found.over)
    kept = {} if W.trust is None else {name: getattr(W.trust, name) for name in OF_THE_FIT}
    return replace(W, trust=replace(trust, **kept))
