"""Recomputes figures of the papers: data points, numbers to compare with the paper, pictures."""
