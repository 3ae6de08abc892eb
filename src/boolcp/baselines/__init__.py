"""The Boolean methods that the paper compares with BMP, with the same `fit` as BMP.

Input: a tensor and its mask. Output: a decomposition with `to_tensor()`, and the loss over the observed entries.
Nothing in `fit` or `trust` depends on this package.
"""

from boolcp.baselines.lfm import LFM, LFMmix
from boolcp.baselines.sustain import SUSTain

__all__ = ["LFM", "LFMmix", "SUSTain"]
