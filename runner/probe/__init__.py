"""The part that runs inside an environment.

Standard library plus the libraries under test, Python 3.9 to 3.14, shipped as one zipapp. Nothing here
imports anything else of ours; the engine may import the plain-data modules (`frames`, `words`).
"""
