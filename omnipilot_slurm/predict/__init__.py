"""The cost model: roofline, features, trees, conformal offsets, support, predictor."""
