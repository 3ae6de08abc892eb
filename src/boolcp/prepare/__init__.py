"""Steps from a recording to a tensor: each takes a labelled array and returns one, so they compose with `pipe`.

A recording is an xarray DataArray with a mode "time" (coordinates in seconds) and, for most steps, a mode "channel".
Each step notes itself in ``attrs["preparation"]``, which a saved decomposition remembers. Stretches of time that do
not follow each other (two sessions, say) are told apart by a coordinate "segment" along time: no filter runs and no
trial reaches across their border.
"""

from boolcp.prepare.choose import drop, list_conditions, select, select_condition
from boolcp.prepare.common import sampling_rate
from boolcp.prepare.signals import band_pass, bipolar, center, common_average, envelope, log10, notch, resample, zscore
from boolcp.prepare.trials import count_events, cut_trials, join

__all__ = [
    "band_pass",
    "bipolar",
    "center",
    "common_average",
    "count_events",
    "cut_trials",
    "drop",
    "envelope",
    "join",
    "list_conditions",
    "log10",
    "notch",
    "resample",
    "sampling_rate",
    "select",
    "select_condition",
    "zscore",
]
