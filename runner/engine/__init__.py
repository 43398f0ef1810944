"""From a plan to attempts: environments are built, cells are run, everything is written down."""
