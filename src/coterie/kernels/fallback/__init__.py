"""NumPy versions of the kernels, for machines without Numba: same names, same arguments.

`samples`, `sums`, `clusters`, `ranking` and `fixed_point` give the same bits as the kernels; GMF
training agrees within rounding. They are ten times slower, and training sample by sample a thousand
times. That is enough where a GPU trains, and for tests to compare with.
"""
