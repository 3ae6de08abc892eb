"""Optional packages: they are imported where they are used, with an error that names the extra to install."""

import importlib
from typing import Any


def load_extra(module: str, extra: str) -> Any:
    """Return the imported module, or raise an ImportError that says which extra of boolcp installs it.

    Examples
    --------
    >>> from boolcp.extras import load_extra
    >>> load_extra("numpy", "files").__name__
    'numpy'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != package:
            raise
        message = f"This needs the package {package!r}, which is not installed: pip install 'boolcp[{extra}]'."
        raise ImportError(message, name=package) from None
