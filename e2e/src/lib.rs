//! Tests against real kernels in guests and against other people's tools.
