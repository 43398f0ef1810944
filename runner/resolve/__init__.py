"""What does a request become? uv answers, with a lock or with the proof that there is none."""
