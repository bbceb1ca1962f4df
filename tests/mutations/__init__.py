"""Mutations of the package, made from its syntax tree: a test must fail for each (`make mutants`).

A mutation is what a careless change could do: a sign, an index, a constant, a dropped check.

    operators    which mutations a source file has
    choice       which of them are tried: a scope, a sample, what has changed
    executed     which tests execute which lines, measured once and kept in `.mutants/`
    trials       run tests on a mutated copy of the package; the verdict
    meanings     mutations written by hand, where the meaning of the algorithm is at stake
    equivalent   generated mutations that change nothing that can be observed, each with the reason
"""
