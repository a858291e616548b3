"""Text of others, made fit to be shown: the one place where that is done.

Names come from frameworks, reasons from peers; none of them may steer a terminal or forge a line.
"""


def printable(text: str) -> str:
    r"""Show what is no letter, digit, sign or blank as an escape, such as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in text
    )
