"""The steps from a recording to a tensor: conditions, reference, band, trials, baseline, rejection, spike counts.

Input: an xarray DataArray with a mode "time" (seconds) and, for most steps, a mode "channel"; it is never changed.
Output: a DataArray with one more line in ``attrs["preparation"]``, which is saved with a decomposition. Parts that do
not follow each other in time have a coordinate "segment": no filter and no trial crosses the boundary. Columns of a
table of trials are coordinates of the mode "trial". For more signal processing prepare in MNE-Python, and continue with
`boolcp.interop.from_mne`.
"""

from boolcp.prepare.choose import list_conditions, reject, select, select_condition
from boolcp.prepare.common import sampling_rate
from boolcp.prepare.signals import band_pass, baseline, bipolar, common_average, envelope, resample, zscore
from boolcp.prepare.tables import add_table, list_events, set_events
from boolcp.prepare.trials import count_events, count_spikes, cut_trials, join, stack_trials
from boolcp.prepare.whiten import whiten

__all__ = [
    "add_table",
    "band_pass",
    "baseline",
    "bipolar",
    "common_average",
    "count_events",
    "count_spikes",
    "cut_trials",
    "envelope",
    "join",
    "list_conditions",
    "list_events",
    "reject",
    "resample",
    "sampling_rate",
    "select",
    "select_condition",
    "set_events",
    "stack_trials",
    "whiten",
    "zscore",
]
