"""
Real data: faces
================

200 small pictures: 100 of faces, 100 of something else. As a tensor: picture x row x column. An atom that is Boolean
along the pictures is an image that is present in some pictures and absent in the others. Do these bits know what a
face is?
"""

# %%
# The pictures come with scikit-image (`lfw_subset`, from Labeled Faces in the Wild). The labels are not shown to the
# fit.

import matplotlib.pyplot as plt
import numpy as np
from skimage import data
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import boolcp

X = data.lfw_subset()
is_face = np.arange(200) < 100
print(X.shape)

# %%
# Five atoms, Boolean along the pictures only. An image is no product of a column and a row, so the real part is a
# free block.

W = boolcp.decompose(X, n_atoms=5, boolean_modes=[0], atom_rank="block", random_state=0)
bits = np.stack([atom.z for atom in W.atoms], axis=1)
print(f"{100 * W.explained():.0f} % of the squared brightness explained by 5 bits for each picture")

figure, axes = plt.subplots(2, 5, figsize=(10, 4.2), layout="constrained", height_ratios=(3, 1.4))
for k, atom in enumerate(W.atoms):
    image = W.weights[k] * atom.dense_block()
    limit = np.abs(image).max()
    axes[0, k].imshow(image, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes[0, k].set(title=f"atom {k}", xticks=[], yticks=[])
    shares = [100 * atom.z[is_face].mean(), 100 * atom.z[~is_face].mean()]
    axes[1, k].barh(["faces", "others"], shares, color=["#E69F00", "#0072B2"])
    axes[1, k].set(xlim=(0, 100), xlabel="on in (%)")
    axes[1, k].tick_params(labelleft=k == 0)
figure.suptitle("what each atom adds to a picture (red: brighter, blue: darker), and where it is on", fontsize="medium")

# %%
# How much do the bits tell?
# --------------------------
# The best single bit, and a logistic regression on all bits, cross-validated. Beside it as many principal components,
# which are real numbers.

agreement = np.abs((bits == is_face[:, None]).mean(axis=0) - 0.5) + 0.5
print(f"best single bit: {100 * agreement.max():.1f} % right (atom {agreement.argmax()})")
classifier = make_pipeline(StandardScaler(), LogisticRegression())
print("10-fold cross-validation, % right:")
for number in (3, 5, 8):
    W_k = boolcp.decompose(X, number, boolean_modes=[0], atom_rank="block", certify=False, random_state=0)
    features = {
        "bits": np.stack([atom.z for atom in W_k.atoms], axis=1).astype(float),
        "principal components": PCA(number, random_state=0).fit_transform(X.reshape(200, -1)),
    }
    for name, values in features.items():
        guess = cross_val_predict(classifier, values, is_face, cv=10)
        print(f"{number} {name:21} {100 * np.mean(guess == is_face):.1f}")

# %%
# With few of them the bits tell more, with eight the components do. Only the regression is cross-validated: bits and
# components were computed from all pictures, without labels. Five bits can tell 32 kinds of pictures apart. The faces
# among them:

kinds, kind = np.unique(bits, axis=0, return_inverse=True)
counts = np.array([[np.sum((kind == i) & group) for group in (is_face, ~is_face)] for i in range(len(kinds))])
order = np.argsort(counts[:, 0] - counts[:, 1])[::-1]
figure, ax = plt.subplots(figsize=(8, 2.8), layout="constrained")
names = ["".join("1" if bit else "0" for bit in kinds[i]) for i in order]
ax.bar(names, counts[order, 0], color="#E69F00", label="faces")
ax.bar(names, -counts[order, 1], color="#0072B2", label="others")
ax.axhline(0, color="black", linewidth=0.8)
ax.tick_params(axis="x", rotation=90)
ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
ax.set(xlabel="bits of atoms 0 to 4", ylabel="number of pictures")
ax.legend(frameon=False)

# %%
# **Try next:** other numbers of atoms; ``atom_rank=1``, for which an image has to be a product; pictures with their
# mean brightness removed.
