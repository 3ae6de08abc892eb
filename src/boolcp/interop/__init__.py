"""To and from other packages: CP tensors of TensorLy, tensortools and pyttb; recordings of MNE."""

from boolcp.interop.cp_tensors import (
    from_pyttb,
    from_tensorly,
    from_tensortools,
    to_pyttb,
    to_tensorly,
    to_tensortools,
)
from boolcp.interop.mne_objects import add_to_report, from_mne

__all__ = [
    "add_to_report",
    "from_mne",
    "from_pyttb",
    "from_tensorly",
    "from_tensortools",
    "to_pyttb",
    "to_tensorly",
    "to_tensortools",
]
