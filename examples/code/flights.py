"""The example's step: for each flight where it flew, how far along the great circle, how fast, and how late it landed."""

from __future__ import annotations

import csv
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

EARTH_RADIUS_KM = 6371.0088
#: Delivered with this module, wherever it runs.
AIRPORTS = Path(__file__).with_name("airports.csv")


class Enrich:
    """A row step. `setup` runs once per process, before the first row."""

    def __init__(self, late_after_minutes: int) -> None:
        self.late_after_minutes = late_after_minutes
        self.places: dict[str, tuple[float, float]] = {}

    def setup(self) -> None:
        with AIRPORTS.open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                self.places[row["faa"]] = (math.radians(float(row["lat"])), math.radians(float(row["lon"])))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        kilometres, bearing = self.great_circle(row["origin"], row["dest"])
        minutes, delay = row["air_time"], row["arr_delay"]
        scheduled = datetime(row["year"], row["month"], row["day"], row["hour"], row["minute"], tzinfo=UTC)
        left = None if row["dep_delay"] is None else scheduled + timedelta(minutes=row["dep_delay"])
        return {
            "day": scheduled.date(),
            "scheduled_local": scheduled.replace(tzinfo=None),
            "flight": f"{row['carrier']}{row['flight']}",
            "tail_number": row["tailnum"],
            "origin": row["origin"],
            "destination": row["dest"],
            "kilometres": kilometres,
            "initial_bearing": bearing,
            "speed_kmh": None if kilometres is None or not minutes else kilometres / (minutes / 60),
            "arrival_delay_minutes": delay,
            "was_late": None if delay is None else delay > self.late_after_minutes,
            "left_local": left and left.replace(tzinfo=None),
        }

    def great_circle(self, origin: str, destination: str) -> tuple[float | None, float | None]:
        """Return kilometres and the initial bearing in degrees between two airports; None if one is not known."""
        if origin not in self.places or destination not in self.places:
            return None, None
        (lat1, lon1), (lat2, lon2) = self.places[origin], self.places[destination]
        dlon = lon2 - lon1
        half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin(dlon / 2) ** 2
        y = math.sin(dlon) * math.cos(lat2)
        x = math.cos(lat1) * math.sin(lat2) - math.sin(lat1) * math.cos(lat2) * math.cos(dlon)
        return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(half)), math.degrees(math.atan2(y, x)) % 360
