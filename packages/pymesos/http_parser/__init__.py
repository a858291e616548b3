"""The part of the distribution http-parser that pymesos uses, over httptools."""
