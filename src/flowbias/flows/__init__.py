"""Trajectories of gradient flow, in the fewest unknowns possible."""

from flowbias.flows.descent import Descent, gradient_descent
from flowbias.flows.effective import predicted_start, stable_step
from flowbias.flows.integrate import flow
from flowbias.flows.lifted.descent import LiftedDescent
from flowbias.flows.lifted.trajectory import LiftedTrajectory
from flowbias.flows.trajectory import FlowError, FlowStatus, Trajectory

__all__ = [
    "Descent",
    "FlowError",
    "FlowStatus",
    "LiftedDescent",
    "LiftedTrajectory",
    "Trajectory",
    "flow",
    "gradient_descent",
    "predicted_start",
    "stable_step",
]
