"""Fitting and measuring the cost model; the only place that needs scikit-learn."""
