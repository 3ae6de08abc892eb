"""Objects of other packages: CP tensors of TensorLy, tensortools and pyttb, recordings of MNE.

An object of another package enters, or a decomposition. A labelled array or a decomposition leaves, or an object of
that package. Each package is imported only when its function is called.
"""

from boolcp.interop.cp_tensors import from_tensorly, to_tensorly
from boolcp.interop.mne_objects import add_metadata, from_mne, to_annotations

__all__ = ["add_metadata", "from_mne", "from_tensorly", "to_annotations", "to_tensorly"]
