"""Figures and tables for people."""


def bytes_text(nbytes):
    """As "12.3 GiB", with one decimal."""
    amount, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.0f} B" if units[0] == "B" else f"{amount:.1f} {units[0]}"


def time_text(ns):
    return f"{ns / 1e9:.2f} s" if ns >= 1e9 else f"{ns / 1e6:.1f} ms"


def shortened(source, width=80):
    """A line of the model, cut off where it is long."""
    return source if len(source) <= width else source[:width] + " ..."


def table(rows, sides):
    """Lines of rows of texts, with columns as wide as their widest cell; `sides` has a letter for
    each, l or r: where its cells are aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ).rstrip()
        for row in rows
    ]
