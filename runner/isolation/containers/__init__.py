"""How is an environment entered with an engine? Images, a volume that holds the store, a container for the cells."""
