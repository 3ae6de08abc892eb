"""
Can I trust an atom?
====================

Three questions, three tools. Is this the best choice of bits for the data (certificate)? Would it come back in other
data (stability)? Could other atoms give the same tensor (identifiability)?
"""

# %%
# A simulated recording has three patterns. We ask for four atoms, so one has to be made of the background.

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np

import boolcp
from boolcp import Atom, BooleanCP

recording = boolcp.datasets.simulate_recording(noise=1.5, random_state=0)
W = boolcp.decompose(recording.X, 4, atom_rank=1, random_state=0)
print(W.summary())

# %%
# The certificate
# ---------------
# Of each atom: the share of the best possible score that its bits are *proved* to reach, all other atoms given. It
# speaks about the search, not about the data: an atom made of noise can have a good certificate. And it is a lower
# bound: the truth can be 100 % where 50 % are proved.

boolcp.plotting.plot_certificates(W)

# %%
# Stability
# ---------
# Fit random halves of the trials, each on its own. Patterns of the brain come back in both halves, those of the
# background do not.

stability = boolcp.stability(recording.X, 4, scheme="halves", n_runs=3, random_state=0)
print(stability.summary())

# %%
# Atom 3 never comes back: it is made of background. Atom 2 is a pattern of the simulation, but it is weak, and half
# of the trials are often not enough to find it. So an atom that always comes back is in the data; one that does not
# may be noise, or need more data.
#
# Each bit has a probability, too: in how many of the fits that found the atom it was on. Bits in between are not
# sure: of atom 0, some moments in its second half.

figure, axes = plt.subplots(2, 1, figsize=(7, 4.8), layout="constrained")
for ax, atom in zip(axes, (1, 0), strict=True):
    stability.plot(atom=atom, ax=ax)

# %%
# Identifiability
# ---------------
# Some sums of atoms can be written in other ways, however good the data. ``diagnose`` says for each atom whether it
# is the only possibility, with the reason.

print(boolcp.identifiability.diagnose(W))

# %%
# A case where it is not: two blocks along one mode, one on in all places of the other. The same tensor has three
# descriptions, and no amount of data decides between them.

rng = np.random.default_rng(0)
blocks = [block / np.linalg.norm(block) for block in rng.standard_normal((2, 6, 7))]
nested = BooleanCP((4, 6, 7), (Atom(0, [1, 1, 0, 0], block=blocks[0]), Atom(0, [1, 1, 1, 0], block=blocks[1])), [1, 1])
print(boolcp.identifiability.diagnose(nested))

# %%
# **In short:** report the certificate (was the search good?), the stability over halves of your trials (is it in the
# data?) and the verdict (is it unique?). An atom that fails one of them is not wrong, but needs another argument.
#
# **Try next:** ``scheme="bootstrap"``; ``boolcp.select_n_atoms`` on the same recording.
