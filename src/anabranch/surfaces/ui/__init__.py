"""The pages for people: rendered here, moved by server-sent events, without anything to build.

`mount(app)` adds them to the application that has the engine in `app[PARTS]`.
"""

from anabranch.surfaces.ui.routes import mount

__all__ = ["mount"]
