"""Mutation test of the verifier: plant small faults in right kernels, and count those that it catches.

    python -m benchmarks.mutants [--operation softmax] [--backend cpp] [--sample 40 --seed 1] [--out FOLDER]

Every starter is changed in one place at a time: a bound, a mask, an operand, a constant, a cast, a
synchronisation.  The real verifier judges each mutant.  One that is accepted is then compared with
the starter, bit by bit, on inputs of its own; only if some output differs has the verifier missed it.

`faults` lists the mutants of a text, `judging` has them judged, `equivalence` compares the accepted
ones, `report` counts.
"""
