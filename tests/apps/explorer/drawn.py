"""What the charts of a view hold once a scene is shown."""

from flowbias.apps.explorer.drawing import Picture


class Shown:
    """The pictures of one tab, and where each named mark is in them."""

    def __init__(self, view, scene):
        self.view = view
        self.pictures = [Picture(chart) for chart in view.charts]
        self.show(scene)

    def show(self, scene):
        data = self.view.data(scene)
        for picture in self.pictures:
            picture.show(data)

    @property
    def figures(self):
        return [picture.figure for picture in self.pictures]

    def marks(self, name):
        """All renderers of a name."""
        return [
            drawn
            for picture in self.pictures
            for mark, drawn in picture._drawn
            if mark.name == name
        ]

    def columns(self, name):
        """The data of the first mark of a name."""
        return self.marks(name)[0].data_source.data
