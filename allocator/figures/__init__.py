"""Recomputes figures of the papers: their points, known facts of the paper, and pictures."""
