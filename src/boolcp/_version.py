"""The version, read by the build and by boolcp itself."""

__version__ = "0.1.0"
