"""What notebooks can do beyond showing a result: a slider over the scale of the start."""

from flowbias.notebooks.scale_slider import scale_slider

__all__ = ["scale_slider"]
