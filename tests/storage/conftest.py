"""What the tests of storages share."""

import pytest

from boolcp.fit import order


@pytest.fixture(autouse=True)
def arrays_in_their_own_order(monkeypatch):
    """Arrays in memory keep their order, as those that are read in passes do: both then take the same steps."""
    monkeypatch.setattr(order, "MAX_ENTRIES", 0)
