"""Is a network training as a kernel method, or learning features?

    diagnose(before, after, x, y)          after training: measures and a verdict, in words
    predict(module, x, y)                  before any: what to expect, and how to rescale
    with Monitor(module, x) as monitor:    while it trains, at bounded cost; also as a callback
    step_effect(module, x, y, step_size=h) how far steps of that length are from the flow
    sweep(make_model, (x, y), scales)      the whole transition, and the largest scale still rich

Torch (extra `nets`) is loaded by the first call that needs it, not by importing this.
"""

from flowbias.regime.callbacks import lightning_callback, trainer_callback, watch
from flowbias.regime.diagnose import diagnose
from flowbias.regime.diagnosis import Diagnosis
from flowbias.regime.history import Every, Geometric, History, Record, Schedule
from flowbias.regime.measures import Gaps, StepEffect, step_effect
from flowbias.regime.monitor import Monitor
from flowbias.regime.predict import Prediction, Rescaling, predict
from flowbias.regime.sweep import Fit, Sweep, SweepPoint, fit, sweep
from flowbias.regime.thresholds import THRESHOLDS, Thresholds, Verdict

__all__ = [
    "THRESHOLDS",
    "Diagnosis",
    "Every",
    "Fit",
    "Gaps",
    "Geometric",
    "History",
    "Monitor",
    "Prediction",
    "Record",
    "Rescaling",
    "Schedule",
    "StepEffect",
    "Sweep",
    "SweepPoint",
    "Thresholds",
    "Verdict",
    "diagnose",
    "fit",
    "lightning_callback",
    "predict",
    "step_effect",
    "sweep",
    "trainer_callback",
    "watch",
]
