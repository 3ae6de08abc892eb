"""Settings of Sphinx, which builds these pages: `make docs`."""

import re

import boolcp

project = "boolcp"
author = "The boolcp maintainers"
copyright = author
version = release = boolcp.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.mathjax", "numpydoc"]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
default_role = "py:obj"  # `name` in a docstring is code, and a link if it is public
smartquotes = False  # the prime of z'Cz is no apostrophe

# the pages are written for GitHub too: $..$, blocks of math, anchors of headings
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # types stand in the docstrings
numpydoc_show_class_members = False  # they are in _templates/autosummary/class.rst

html_theme = "pydata_sphinx_theme"
html_title = f"boolcp {release}"
html_copy_source = False


def keep_bars(app, what, name, obj, options, lines):
    """Make the bars of norms and absolute values, |X - W|, plain text: to Sphinx they are substitutions."""
    is_example = False
    for i, line in enumerate(lines):
        is_example = line.lstrip().startswith(">>>") or (is_example and bool(line.strip()))
        if not is_example:
            lines[i] = re.sub(r"`[^`]*`|\|", lambda found: "\\|" if found[0] == "|" else found[0], line)


def skip_fields(app, what, name, obj, skip, options):
    """Leave out the fields of named tuples, which the docstring of the class explains."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def setup(app):
    """Connect what is done here to Sphinx; the bars come after numpydoc."""
    app.connect("autodoc-process-docstring", keep_bars, priority=900)
    app.connect("autodoc-skip-member", skip_fields)
