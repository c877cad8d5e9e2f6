"""NoETL playbooks: entry, admission, routing and termination as in canonical v10.

`playbook.py` reads the whole, `steps.py` one step; `tasks/` its tool, `admission.py` its
gate, `routing.py` its arcs, `patches.py` its context writes. `templates.py` compiles what stands
between braces, `names.py` says what can be read there.
"""
