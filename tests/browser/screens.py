"""The widths in CSS pixels at which pages are looked at."""

from __future__ import annotations

DESKTOP = 1280
PHONE = 360  # the narrowest that the book promises to fit
