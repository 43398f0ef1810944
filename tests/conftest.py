"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes depends on what else the machine does: speed is measured by `nox -s bench`, never by a test.
settings.register_profile("metamatrix", deadline=None)
settings.load_profile("metamatrix")
