"""Statistics without I/O: means and quantiles in one pass, estimators, charts as data and as SVG."""
