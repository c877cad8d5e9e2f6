"""The pages for people: rendered here, moved by server-sent events, without anything to build.

`routes.mount(app)` adds them to the application that has the engine in `app[PARTS]`.
"""
