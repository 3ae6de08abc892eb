"""
Labelled data
=============

Names of modes, coordinates and units travel with the data: from an xarray DataArray to factors, tables and pictures,
and into the saved file. The mathematics never sees them.
"""

# %%
# Band power of 12 regions in 6 frequency bands over 40 sessions, two groups of subjects. In the patients, alpha and
# theta are stronger in some regions.

import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import boolcp

rng = np.random.default_rng(1)
regions = ["V1", "V2", "V4", "MT", "PPC", "M1", "PM", "S1", "dlPFC", "vlPFC", "OFC", "ACC"]
bands = ["delta", "theta", "alpha", "beta", "low gamma", "high gamma"]
group = np.repeat(["patient", "control"], 20)
strength = np.array([0, 0, 0, 0.3, 1, 0, 0.4, 0, 1.2, 1, 0.5, 0.9])
profile = np.array([0.2, 1.0, 1.3, 0.1, 0, 0])
power = np.multiply.outer(np.multiply.outer(strength, profile), group == "patient")
power = power + 0.3 * rng.standard_normal(power.shape)
X = xr.DataArray(
    power,
    coords={"region": regions, "band": bands, "session": np.arange(1, 41), "group": ("session", group)},
    dims=("region", "band", "session"),
    name="log power",
)

# %%
# Modes are called by their names.

W = boolcp.decompose(X, n_atoms=1, boolean_modes=["session"], random_state=0)
print(W)

# %%
# The pictures have the names on their axes.

W.plot()

# %%
# Results as labelled arrays and tables. In which sessions is the atom on? The fit did not know the groups.

result = W.to_xarray()
bits = result["factor_session"].isel(atom=0).astype(bool)
print("on in:", np.unique(group[bits], return_counts=True), "off in:", np.unique(group[~bits], return_counts=True))
print(result["factor_region"].isel(atom=0).to_series().round(2).sort_values(ascending=False).head(4))

# %%
# One row for each atom, for a paper or for pandas.

W.to_dataframe()

# %%
# All of it is saved in one netCDF file, which xarray can open without boolcp.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "result.nc"
    W.save(path)
    print(boolcp.load(path).labels.coords["region"][:4], "-", path.stat().st_size // 1024, "KiB")

# %%
# **Try next:** ``boolcp.open_tensor("file.nc")`` reads labels from files; ``W.report("report.html")`` writes one page
# with all pictures.
