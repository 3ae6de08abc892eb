"""What methods that fit again and again share: the model of all fits, and the processes they run on."""

from boolcp import checks
from boolcp.bmp import BMP


def make_model(n_atoms, options, shape, dims):
    """Return the BMP to fit, its Boolean modes as indices: the parts of X that it sees have no names."""
    modes = options.get("boolean_modes")
    modes = None if modes is None else checks.check_modes(modes, shape, dims)
    return BMP(n_atoms, **({"certify": False} | options | {"boolean_modes": modes}))


def run_all(function, tasks, n_jobs, verbose, what):
    """Return the results of function(*task) for all tasks, in order, on `n_jobs` processes, with a progress bar."""
    from joblib import Parallel, delayed
    from tqdm import tqdm

    calls = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(*task) for task in tasks)
    return list(tqdm(calls, total=len(tasks), desc=what, disable=None if verbose else True))
