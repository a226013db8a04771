"""Numbers as people write them, used alike by sentences, tables and plots."""

from __future__ import annotations


def percent(share: float, digits: int = 1) -> str:
    return f"{share * 100:.{digits}f} %"


def points(loss: float) -> str:
    """A loss against the ANN in points: "lost 0.30 points", or a gain without a minus to overlook."""
    shown = round(abs(loss) * 100, 2)
    if shown == 0:
        return "no loss"
    return f"{shown:.2f} points {'lost' if loss > 0 else 'gained'}"


def count(value: float) -> str:
    """12, 1,234, 15.2 k, 3.4 M: at most three figures that matter."""
    size = abs(value)
    for limit, factor, unit in ((1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if size >= limit:
            return f"{_short(value / factor)}{unit}"
    return f"{value:,.0f}" if size >= 100 or value == int(value) else _short(value)


def joules(picojoules: float) -> str:
    for factor, unit in ((1e9, "mJ"), (1e6, "µJ"), (1e3, "nJ")):
        if abs(picojoules) >= factor:
            return f"{_short(picojoules / factor)} {unit}"
    return f"{_short(picojoules)} pJ"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{_short(seconds)} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def times(ratio: float) -> str:
    return f"{_short(ratio)} times"


def several(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def _short(value: float) -> str:
    """Three significant digits without an exponent."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}".removesuffix(".0")
    return f"{value:.2f}".rstrip("0").rstrip(".") if size >= 0.1 or size == 0 else f"{value:.2g}"
