"""Laws of the reader of reports: it undoes the writer, and refuses what is no row."""

import dataclasses
import json
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jaxcontam.errors import InputError
from jaxcontam.proof.result import MembershipResult, OrderReport, OrderResult
from jaxcontam.replication.comparisons import ComparisonResult
from jaxcontam.reports.kinds import COMMANDS, kind_of
from jaxcontam.reports.read import json_schema, read_result
from jaxcontam.reports.report_files import result_row, to_document
from jaxcontam.stats.result import Pretest
from tests.support.report_documents import audit_report, order_result, ranking_result

RANKING = ranking_result()


def changed(row, **fields):
    return result_row(row) | fields


def test_field_that_an_older_report_lacks_takes_its_default():
    row = result_row(RANKING)
    del row["copies"]
    assert read_result(MembershipResult, row) == RANKING


ANSWERS = {
    **{"benchmark": "b", "fingerprint": "f", "method": "cdd", "finding": "x"},
    **{"n_instances": 1, "n_found": 0, "rate": None, "rate_low": None},
    **{"rate_high": None, "setting": "", "verdict": None},
}


@pytest.mark.parametrize(
    ("kind", "row", "said"),
    [
        (OrderResult, [], r"^row: expected an object, got \[\]$"),
        (OrderResult, {}, "^row: no benchmark$"),
        *(
            (OrderResult, changed(order_result(), **fields), said)
            for fields, said in (
                ({"guess": 1}, "unknown field 'guess'"),
                ({"p_value": "x"}, "p_value: .* finite"),
                ({"p_value": True}, "p_value: .* finite"),
                ({"p_value": float("nan")}, "finite"),
                ({"p_value": 10**400}, "finite"),
                ({"n_strata": 2.5}, "a whole number"),
                ({"primary": 1}, "true or false, got 1"),
                ({"pretests": [{}]}, r"pretests\[0\]: no name"),
                ({"local": [1]}, "local: expected an object"),
            )
        ),
        (MembershipResult, changed(RANKING, verdict="suspected"), "expected null"),
        (ComparisonResult, {"benchmark": "b", "verdict": "clean"}, "fingerprint"),
        (ComparisonResult, ANSWERS | {"verdict": "clean"}, "expected 'contaminated' o"),
    ],
)
def test_what_is_no_row_is_refused_in_one_line(kind, row, said):
    with pytest.raises(InputError, match=said):
        read_result(kind, row)


@pytest.mark.parametrize("command", COMMANDS)
def test_schema_of_every_report_is_one_and_describes_its_rows(command):
    schema = json_schema(kind_of([command]).report)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["wall_seconds"]["description"]


def test_schema_takes_what_the_reader_takes_and_refuses_what_it_refuses():
    pretest = Pretest("length_trend", 0.5, 0.25, True)
    report = audit_report(results=(order_result(pretests=(pretest,)), RANKING))
    document = to_document(report)
    schema = jsonschema.Draft202012Validator(json_schema(OrderReport))
    assert schema.is_valid(document)
    wrong = {"verdict": "clean", "p_value": None, "pretests": [{}], "unknown": 1}
    for name, value in wrong.items():
        changed = json.loads(json.dumps(document))
        changed["results"][0][name] = value
        assert not schema.is_valid(changed), name
        with pytest.raises(InputError):
            read_result(OrderReport, changed)


_PLAIN = {
    str: st.text(max_size=3),
    int: st.integers(-9, 9),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    types.NoneType: st.none(),
    object: st.none(),
    Any: st.none(),
}


def values_of(hint):
    """Strategy of what an annotation of a report allows."""
    origin, args = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        fields = {f.name: values_of(hints[f.name]) for f in dataclasses.fields(hint)}
        # Checks of a row's own, such as ends that come in pairs, are another matter.
        return st.fixed_dictionaries(fields).map(lambda found: _built(hint, found))
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[1:] == (...,):
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, args))
    if origin is dict:
        return st.dictionaries(values_of(args[0]), values_of(args[1]), max_size=2)
    return _PLAIN[hint]


def _built(kind, fields):
    built = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(built, name, value)
    return built


@pytest.mark.parametrize("command", COMMANDS)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_any_report_is_read_as_it_was_written(command, data):
    kind = kind_of([command]).report
    report = data.draw(values_of(kind))
    document = json.loads(json.dumps(to_document(report)))
    read = read_result(kind, document, "report", more=True)
    assert to_document(read) == to_document(report)
