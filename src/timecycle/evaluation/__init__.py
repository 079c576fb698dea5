"""How well labels are carried: metrics, and the benchmarks that use them."""
