"""The static site: works from a folder, needs no server and no script."""
