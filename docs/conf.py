"""Settings of Sphinx, which builds these pages: `make docs`."""

import contextlib
import os
import re
import unicodedata

import latex2mathml.converter
from docutils import nodes

import boolcp

project = "boolcp"
author = "The boolcp maintainers"
copyright = author
version = release = boolcp.__version__

extensions = [
    "myst_nb",  # pages in markdown, and notebooks, which it runs
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
if os.environ.get("INTERSPHINX") == "1":  # links to the pages of other libraries; the build needs the network for them
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "xarray": ("https://docs.xarray.dev/en/stable", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
    }
exclude_patterns = ["_build", "auto_examples/*.ipynb", "auto_examples/*.py", "sg_execution_times.rst"]
templates_path = ["_templates"]
default_role = "py:obj"  # `name` in a docstring is code, and a link if it is public
nitpicky = True
nitpick_ignore_regex = [("py:obj", r".*")]  # .. and plain code if it is not: names of arguments, say
smartquotes = False  # the prime of z'Cz is no apostrophe

# the pages are written for GitHub too: $..$, blocks of math, anchors of headings
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4

# notebooks are kept without output and run by the build, which an error in one of them stops
nb_execution_mode = "force" if os.environ.get("NOTEBOOKS", "1") == "1" else "off"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

# the recordings are not part of the library: examples on them are left out where BOOLCP_DATA does not name their folder
has_recordings = os.path.isdir(os.environ.get("BOOLCP_DATA", ""))
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"__init__\.py" if has_recordings else r"_recorded_",
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("boolcp",),
    "reference_url": {"boolcp": None},
    "backreferences_dir": None,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "thumbnail_size": (480, 320),
    "matplotlib_animations": False,
    "capture_repr": ("_repr_html_", "__repr__"),
    "ignore_repr_types": r"matplotlib|Figure|Axes|list|tuple",
    "abort_on_example_error": True,
}

copybutton_prompt_text = r">>> |\.\.\. |\$ "  # copied without prompts and output
copybutton_prompt_is_regexp = True

autodoc_typehints = "none"  # types stand in the docstrings
numpydoc_show_class_members = False  # they are in _templates/autosummary/class.rst

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = f"boolcp {release}"
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["boolcp.css"]
# pages without pages below them, and notebooks, whose code and tables need the room
alone = ("getting_started", "faq", "comparison", "reproduction", "reports", "benchmarks", "changes", "notebooks/*")
html_sidebars = {page: [] for page in alone}
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


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


def styled_letter(found):
    """Return a bold, script or double-struck letter as the character that it is: browsers do not style letters."""
    style, letter = found[1].upper().replace("-", " "), found[2]
    name = unicodedata.name(letter).removeprefix("LATIN ").replace(" LETTER", "")  # CAPITAL X, DIGIT ONE
    for full in (f"MATHEMATICAL {style} {name}", f"{style} {name}", f"{found[1].upper()} {name}"):
        with contextlib.suppress(KeyError):
            return f">{unicodedata.lookup(full)}<"
    return found[0]


def write_formula(translator, node):
    """Write a formula as MathML, which browsers show by themselves: without a network, and without scripts."""
    kind = "block" if isinstance(node, nodes.math_block) else "inline"
    text = latex2mathml.converter.convert(node.astext(), display=kind)
    text = text.replace("<mo>&#x02016;", '<mo stretchy="false">&#x02016;')  # the bars of a norm are a pair
    translator.body.append(re.sub(r' mathvariant="(bold|bold-italic|script|double-struck)">(\w)<', styled_letter, text))
    raise nodes.SkipNode


def setup(app):
    """Connect what is done here to Sphinx; the bars come after numpydoc."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("autodoc-process-docstring", keep_bars, priority=900)
    app.connect("autodoc-skip-member", skip_fields)
