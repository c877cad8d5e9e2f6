"""The tests templates have (`is odd`, `select('in', …)`): Jinja's, charged where they compare.

`odd`, `even` and `divisibleby` take numbers only: Jinja's own take text as a format and would pad.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from jinja2 import Undefined, pass_context, pass_environment
from jinja2.tests import TESTS

from anabranch.expressions.jinja.costs import LETTER, charge_comparison, charge_search
from anabranch.expressions.jinja.meter import Meter
from anabranch.expressions.jinja.spending import Spending, check_key

Test = Callable[..., Any]

#: They look at the kind of a value, never into it.
FREE = (
    *("boolean", "callable", "defined", "escaped", "false", "float", "integer"),
    *("iterable", "mapping", "none", "number", "sameas", "sequence", "string"),
    *("true", "undefined"),
)
_COMPARISONS = {
    **dict.fromkeys(("==", "eq", "equalto"), operator.eq),
    **dict.fromkeys(("!=", "ne"), operator.ne),
    **dict.fromkeys(("<", "lt", "lessthan"), operator.lt),
    **dict.fromkeys(("<=", "le"), operator.le),
    **dict.fromkeys((">", "gt", "greaterthan"), operator.gt),
    **dict.fromkeys((">=", "ge"), operator.ge),
}


def tests(meter: Meter) -> dict[str, Test]:
    return {
        **{name: TESTS[name] for name in FREE},  # type: ignore[misc]
        **{name: _comparison(work) for name, work in _COMPARISONS.items()},
        "in": contained,
        **{name: _named(TESTS[name]) for name in ("filter", "test")},  # type: ignore[arg-type]
        "odd": lambda value: _number(value, "odd") % 2 == 1,
        "even": lambda value: _number(value, "even") % 2 == 0,
        "divisibleby": _divisible(meter),
        "lower": _of_text(meter, str.islower),
        "upper": _of_text(meter, str.isupper),
    }


def _comparison(work: Callable[[Any, Any], Any]) -> Test:
    @pass_context
    def run(scope: Spending, left: Any, right: Any) -> Any:
        charge_comparison(scope, left, right)
        return work(left, right)

    return run


def _named(work: Callable[..., bool]) -> Test:
    @pass_environment
    def run(environment: Any, name: Any) -> bool:
        check_key(name)
        return work(environment, name)

    return run


@pass_context
def contained(scope: Spending, item: Any, container: Any) -> bool:
    charge_search(scope, item, container)
    return item in container


def _number(value: Any, test: str) -> Any:
    if isinstance(value, (int, float, Undefined)):  # an undefined one says so itself
        return value
    raise TypeError(f"the test {test!r} takes a number, not a {type(value).__name__}")


def _divisible(meter: Meter) -> Test:
    @pass_context
    def run(scope: Spending, value: Any, num: Any) -> bool:
        left, right = _number(value, "divisibleby"), _number(num, "divisibleby")
        return bool(meter.remainder(scope, left, right) == 0)

    return run


def _of_text(meter: Meter, work: Callable[[str], bool]) -> Test:
    @pass_context
    def run(scope: Spending, value: Any) -> bool:
        text = meter.text(scope, value)
        scope.charge(LETTER * len(text))
        return work(text)

    return run
