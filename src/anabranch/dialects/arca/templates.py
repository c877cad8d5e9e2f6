"""`workflow-template.v1`: a plan with parameters, made into a definition when it is used.

    {"schema": "workflow-template.v1", "template_id": "biweekly.v1", "label": "…",
     "parameters": {"topic": {"type": "string"}, "budget": {"type": "integer", "default": 10}},
     "deadline": "PT1H", "plan": {"steps": [… "{{params.topic}}" …]}}

Only `{{params.…}}` is put in; references to the run stay as they are for the run to read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Scalar, plain
from anabranch.dialects.source import read_source
from anabranch.errors import DefinitionError, ExpressionError, InputError
from anabranch.expressions.references import compile_references, substitute
from anabranch.net.inputs import TYPES, is_of
from anabranch.net.problems import did_you_mean

SCHEMA = "workflow-template.v1"

TEMPLATE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
#: What belongs to the template and not to the definitions made from it.
OWN = (
    *("schema", "template_id", "template_kind", "participant_id", "parameters"),
    *("signature", "deleted", "created_at", "updated_at", "request_input_hints"),
)
PASSED_ON = (
    *("plan", "steps", "deadline", "input", "workflow_kind", "label", "description"),
    *("max_parallel_steps", "deadline_seconds", "workflow_id", "definition_id"),
)


class Parameter(msgspec.Struct, frozen=True):
    name: str
    type: str = "any"
    required: bool = True
    default: Any = None
    description: str = ""


class Template(msgspec.Struct, frozen=True):
    template_id: str
    parameters: tuple[Parameter, ...]
    body: Mapping[str, Any]
    label: str = ""
    description: str = ""
    deleted: bool = False

    def materialise(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The definition for these parameters. `InputError` names the parameter at fault."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                hint = did_you_mean(name, known)
                message = f"template {self.template_id} has no parameter {name!r}"
                raise InputError(
                    f"{message}; {hint}" if hint else message, code="unknown_parameter"
                )
        values = {name: _value(self, parameter, given) for name, parameter in known.items()}
        try:
            body: dict[str, Any] = substitute(dict(self.body), "params", values)
        except ExpressionError as error:
            raise InputError(f"template {self.template_id}: {error}", code="bad_template") from None
        body.setdefault("workflow_id", self.template_id)
        return body


def _value(template: Template, parameter: Parameter, given: Mapping[str, Any]) -> Any:
    if parameter.name not in given:
        if parameter.required:
            message = f"template {template.template_id} needs the parameter {parameter.name!r}"
            raise InputError(f"{message} ({parameter.type})", code="missing_parameter")
        return parameter.default
    value = given[parameter.name]
    if not is_of(value, parameter.type):
        message = f"parameter {parameter.name!r} must be of type {parameter.type}"
        raise InputError(f"{message}, not {_type_name(value)}", code="parameter_type")
    if _has_references(value):
        message = f"parameter {parameter.name!r} holds a reference, and parameters are not read"
        raise InputError(f"{message}: write the reference into the template", code="parameter_type")
    return value


def _has_references(value: Any) -> bool:
    """What was put in is never looked at again, so nothing in it may look like a reference."""
    try:
        return any(True for _ in compile_references(value).references())
    except ExpressionError:
        return True


def _type_name(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def is_template_id(text: str) -> bool:
    return TEMPLATE_ID.fullmatch(text) is not None


def read_template(text: str | bytes, *, file: str = "<template>") -> Template:
    """The template in a text; `DefinitionError` with everything that is wrong with it."""
    document = read_source(text, file=file)
    findings = Findings()
    findings.problems.extend(document.problems)
    template = None
    if document.root is not None:
        section = findings.section(document.root, "the template")
        template = _template(section, findings) if section is not None else None
    errors = [problem for problem in findings.problems if problem.severity == "error"]
    if errors or template is None:
        raise DefinitionError(errors)
    return template


def _template(root: Section, findings: Findings) -> Template | None:
    _check_kind(root, findings)
    template_id = root.text("template_id")
    if template_id is None:
        root.missing("template_id", "name it, with a version, such as biweekly.v1")
    elif not is_template_id(str(template_id.value)):
        message = f"a template cannot be called {template_id.value!r}"
        hint = "use letters, digits and . _ : / -, the first a letter or a digit"
        findings.add(template_id.position, "bad-name", message, hint)
    if "steps" not in root:
        root.require("plan", 'add `"plan": {"steps": […]}`')
    parameters = _parameters(root)
    for key in (*OWN, *PASSED_ON):
        root.ask(key)
    root.finish()
    body = {key: plain(node) for key, node in root.node.fields.items() if key in PASSED_ON}
    _check_references(root, body, parameters, findings)
    return Template(
        str(template_id.value) if template_id is not None else "",
        parameters,
        body,
        root.string("label"),
        root.string("description"),
        root.flag("deleted"),
    )


def _check_kind(root: Section, findings: Findings) -> None:
    schema = root.text("schema")
    if schema is not None and schema.value != SCHEMA:
        message = f"`schema` is {schema.value!r}"
        findings.add(schema.position, "bad-choice", message, f"write {SCHEMA!r}")
    root.choice("template_kind", ("workflow",), "workflow")
    if root.ask("deadline_seconds") is not None:
        message = "`deadline_seconds` is no longer read"
        hint = "write `deadline` as a duration, such as PT5M"
        root.report("deadline_seconds", "removed-key", message, hint)


def _parameters(root: Section) -> tuple[Parameter, ...]:
    section = root.section("parameters")
    if section is None:
        return ()
    found = []
    for name, node in section.node.fields.items():
        section.ask(name)
        if not PARAMETER.fullmatch(name):
            message = f"a parameter cannot be called {name!r}"
            section.report(name, "bad-name", message, "use a plain name")
            continue
        found.append(_parameter(name, node, section.findings))
    return tuple(found)


def _parameter(name: str, node: Fields | Any, findings: Findings) -> Parameter:
    if isinstance(node, Scalar) and isinstance(node.value, str):
        node = Fields({"type": node}, {"type": node.position}, node.position)
    section = findings.section(node, f"parameter {name!r}")
    if section is None:
        return Parameter(name)
    kind = section.choice("type", TYPES, "any")
    default = section.ask("default")
    has_default = "default" in section.node
    required = section.flag("required", not has_default)
    value = plain(default) if default is not None else None
    if has_default and value is not None and not is_of(value, kind):
        message = f"the default of parameter {name!r} is not of type {kind}"
        section.report("default", "wrong-type", message, "change one of them")
    parameter = Parameter(name, kind, required, value, section.string("description"))
    section.finish()
    return parameter


def _check_references(
    root: Section, body: Mapping[str, Any], parameters: Sequence[Parameter], findings: Findings
) -> None:
    names = {parameter.name for parameter in parameters}
    try:
        compiled = compile_references(body)
    except ExpressionError as error:
        findings.add(root.position, "bad-template", str(error))
        return
    for reference in compiled.references():
        name = reference.path.segments[1] if len(reference.path.segments) > 1 else ""
        if reference.root == "params" and name not in names:
            message = f"{reference.text} reads a parameter that is not declared"
            hint = did_you_mean(name, names) or f"add {name!r} to `parameters`"
            findings.add(root.position, "unknown-reference", message, hint)


def definition_text(definition: Mapping[str, Any]) -> str:
    """A materialised definition as it is stored and shown."""
    return json.dumps(definition, indent=2, ensure_ascii=False) + "\n"
