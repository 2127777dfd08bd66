"""The figures of Woodworth et al. 2020 on diagonal networks, one module each."""
