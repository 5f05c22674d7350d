"""What stands in for compiled kernels where Numba is not installed: same names, same arguments, plain NumPy.

`samples`, `sums`, `clusters` and `ranking` give the same bits as the kernels, and GMF's training the same within rounding. They are slower
by ten times, training sample by sample by a thousand: enough for a machine whose GPU trains, and for tests to compare with.
"""
