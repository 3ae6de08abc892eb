"""What a person reads of a decomposition: shares of variance, summary, one line. Methods of `BooleanCP`."""

from html import escape

import numpy as np


def explained(W):
    """Return the share of |X|^2 (over the observed entries) that is explained, 1 - |X - W|^2 / |X|^2.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> round(W.explained(), 2)
    0.99
    """
    G = observed_gram(W)
    loss = W.data_norm2 - 2 * W.weights @ W.data_inner + W.weights @ G @ W.weights
    return float(1 - max(loss, 0.0) / W.data_norm2) if W.data_norm2 else 1.0


def explained_alone(W):
    """Return for each atom the share of |X|^2 that it would explain alone, (K,).

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> W.explained_alone().round(2).tolist()
    [0.68, 0.28]
    """
    G = observed_gram(W)
    return W.data_inner**2 / np.diag(G) / W.data_norm2


def explained_unique(W):
    """Return for each atom the share of |X|^2 lost without it, the other weights solved anew, (K,).

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> W.explained_unique().round(2).tolist()
    [0.71, 0.31]
    """
    G = observed_gram(W)
    best = _quadratic_form(G, W.data_inner)
    keep = ~np.eye(W.n_atoms, dtype=bool)
    without = [_quadratic_form(G[np.ix_(k, k)], W.data_inner[k]) for k in keep]
    return np.array([max(best - value, 0.0) for value in without]) / W.data_norm2


def observed_gram(W):
    """Return <M_k, M_l> over the entries of the data, (K, K)."""
    _need_data(W)
    return W.inner_products() if W.data_gram is None else W.data_gram


def _need_data(W):
    if W.data_norm2 is None or W.data_inner is None:
        raise ValueError("Shares of variance need the data: only a decomposition that was fitted has them.")


def summary(W):
    """Return a table as text: mode, ones, weight, explained and unique share, certificate of each atom.

    *alone* is the share of variance that the atom explains by itself, *unique* the share that is lost
    without it, and *certificate* says which part of the best possible score its z is proved to reach.
    The last line says whether other atoms could sum to the same tensor, where that is told at little cost.

    Examples
    --------
    >>> import boolcp
    >>> X, clean, truth = boolcp.datasets.make_boolean_cp((8, 9, 10), 2, noise=0.1, random_state=0)
    >>> W = boolcp.decompose(X, 2, random_state=0)
    >>> print(W.summary())
    2 atoms of a 8 x 9 x 10 tensor, 98.70 % of the variance explained
    atom  mode  ones  rank  weight   alone  unique  certificate
       0     1   3/9     1   11.26  67.6 %  71.0 %       99.8 %
       1     0   3/8     1   7.451  27.7 %  31.1 %       99.5 %
    These atoms are identifiable: no other 2 atoms sum to the same tensor.
    """
    rows = _table(W)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([_title(W), *lines, *_verdict_lines(W)])


def html_text(W):
    """Return the summary as a table in HTML, which notebooks show."""
    head, *rows = ([f"<td>{escape(cell)}</td>" for cell in row] for row in _table(W))
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{''.join(head).replace('td>', 'th>')}</tr></thead><tbody>{body}</tbody></table>"
    return "".join([f"<p>{escape(_title(W))}</p>", table, *(f"<p>{escape(line)}</p>" for line in _verdict_lines(W))])


def _title(W):
    """Return number of atoms, shape and, after a fit, the share of variance explained, in one line."""
    share = "" if W.data_gram is None else " of the observed entries"
    total = f", {100 * W.explained():.2f} % of the variance{share} explained" if _has_shares(W) else ""
    return f"{count_text(W)} of a {shape_text(W)} tensor{total}"


def _has_shares(W):
    return W.data_norm2 is not None and W.data_inner is not None and W.n_atoms > 0


def _table(W):
    """Return the head and one row for each atom, as texts."""
    has_data = _has_shares(W)
    alone = W.explained_alone() if has_data else np.full(W.n_atoms, np.nan)
    unique = W.explained_unique() if has_data else np.full(W.n_atoms, np.nan)
    head = ("atom", "mode", "ones", "rank", "weight", "alone", "unique", "certificate")
    rows = [head]
    for k, atom in enumerate(W.atoms):
        rank = "block" if atom.rank is None else str(atom.rank)
        ones = f"{atom.n_ones}/{len(atom.z)}"
        shares = [_percent(alone[k]), _percent(unique[k]), _percent(atom.certificate)]
        rows.append((str(k), W.mode_name(atom.mode), ones, rank, f"{W.weights[k]:.4g}", *shares))
    return rows


def _verdict_lines(W):
    """Return the verdict on identifiability, at most one line."""
    from boolcp.trust.identifiability import verdict

    words = verdict(W)
    return [words] if words else []


def count_text(W):
    """Return the number of atoms in words."""
    return "1 atom" if W.n_atoms == 1 else f"{W.n_atoms} atoms"


def shape_text(W):
    """Return the sizes of the modes, with their names if there are any."""
    sizes = [f"{d} {name}" for d, name in zip(W.shape, W.dims, strict=True)] if W.dims else W.shape
    return " x ".join(str(size) for size in sizes)


def repr_text(W):
    """Return a decomposition in one line."""
    counts = [f"{(W.boolean_mode == n).sum()} along mode {W.mode_name(n)}" for n in range(W.ndim)]
    explained = f", explained {W.explained():.4f}" if W.data_norm2 and W.data_inner is not None else ""
    return f"BooleanCP({shape_text(W)}, {count_text(W)}: {', '.join(counts)}{explained})"


def _quadratic_form(G, b):
    """Return b' G^+ b."""
    return float(b @ np.linalg.lstsq(G, b, rcond=None)[0]) if len(b) else 0.0


def _percent(share):
    return "-" if np.isnan(share) else f"{100 * share:.1f} %"
