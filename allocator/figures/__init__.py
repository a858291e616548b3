"""Recomputes figures of the SDRF paper, the thesis behind it (Sadok) and the TSF paper.

Each figure has data points, numbers to compare with the paper's text, and a picture.
"""
