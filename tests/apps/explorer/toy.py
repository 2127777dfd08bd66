"""A view that computes nothing, for tests of the page around it."""

import numpy as np

from flowbias.apps.explorer.drawing import Chart, Hue, line
from flowbias.apps.explorer.view import Choice, Download, Slider, Text, Upload, View
from flowbias.ground.arguments import InputError


def refuse_wrong(content):
    if content == b"wrong":
        raise InputError("file: must be right, got wrong.")


class ToyView(View):
    name = "toy"
    title = "Toy"
    question = "What is a line?"
    controls = (
        Slider("slope", "Slope", 0.0, 2.0, 0.5, 1.0),
        Choice("colour", "Colour", (("red", "Red"), ("blue", "Blue")), "red"),
        Text("word", "Word", "hello", 20),
        Upload("file", "A file", (".csv",), 100, refuse_wrong),
    )

    charts = (Chart("A line", "A line that goes up.", "x", "y", (line("line", Hue.FLOW),)),)

    def scene(self, settings):
        if settings["word"] == "refused":
            raise InputError("word: must not be 'refused', got it. Type another.")
        if settings["word"] == "bug":
            raise ZeroDivisionError("of a kind")
        return dict(settings)

    def first_scene(self, settings):
        return dict(settings) | {"slope": 0.0} if settings["word"] == "slow" else None

    def data(self, scene):
        if scene["word"] == "undrawable":
            raise RuntimeError("no such picture")
        return {"line": (np.arange(2.0), np.array([0.0, scene["slope"]]))}

    def text(self, scene):
        return f"The slope is **{scene['slope']:g}**, the word {scene['word']}."

    def code(self, settings):
        return f"slope = {settings['slope']!r}"

    def downloads(self, scene):
        return (Download("slope.txt", "The slope", f"{scene['slope']}".encode()),)
