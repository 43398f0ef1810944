"""How is an environment entered? Each isolation builds environments, and starts programs in them."""
