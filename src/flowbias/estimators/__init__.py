"""Limits of gradient flow as scikit-learn estimators."""

from flowbias.estimators.coefficient_table import CoefficientTable
from flowbias.estimators.cross_validation import ImplicitBiasRegressorCV
from flowbias.estimators.early_stopping import (
    EarlyStoppedRegressor,
    EarlyStoppedRegressorCV,
    flow_time_path,
)
from flowbias.estimators.flow_cv import FlowRegressorCV
from flowbias.estimators.inference.flow_response import FlowResponse, flow_response
from flowbias.estimators.inference.jackknife import Jackknife, jackknife
from flowbias.estimators.inference.leave_one_out import (
    Refits,
    leave_one_out,
    leave_one_out_refits,
)
from flowbias.estimators.inference.uncertainty import Uncertainty, uncertainty
from flowbias.estimators.regressors import (
    ImplicitBiasRegressor,
    MinNormRegressor,
    RichRegressor,
    implicit_bias_path,
)
from flowbias.estimators.stages import StagesRegressor, StagesRegressorCV

__all__ = [
    "CoefficientTable",
    "EarlyStoppedRegressor",
    "EarlyStoppedRegressorCV",
    "FlowRegressorCV",
    "FlowResponse",
    "ImplicitBiasRegressor",
    "ImplicitBiasRegressorCV",
    "Jackknife",
    "MinNormRegressor",
    "Refits",
    "RichRegressor",
    "StagesRegressor",
    "StagesRegressorCV",
    "Uncertainty",
    "flow_response",
    "flow_time_path",
    "implicit_bias_path",
    "jackknife",
    "leave_one_out",
    "leave_one_out_refits",
    "uncertainty",
]
