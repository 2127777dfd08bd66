"""Reference values: 40-digit function values, 50-digit limits, flows integrated to 1e-25."""

import json
from pathlib import Path

ORACLES = json.loads((Path(__file__).parent / "oracles.json").read_text())
