"""Where commands are carried out: at a store of this machine (`local`) or at a server (`http`).

`port` says what can be asked, `factory` chooses who answers; both sides have the same modules.
"""
