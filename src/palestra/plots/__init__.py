"""Drawings of results as SVG text, without a plotting library: bars and intervals of reports, curves of training runs."""
