"""A parameter that breaks its rule is named, with the rule and the value."""

import math
from fractions import Fraction

import numpy as np
import pytest

from evergraph.core.checks import check_choice, check_integer, check_number
from evergraph.core.errors import ConfigurationError, UnknownNameError


def test_integers_from_the_least_on_pass_and_nothing_else():
    for value in (1, 2, 10**12, np.int64(1)):
        check_integer("hops", value, least=1)
    for value in (0, -3, 1.0, 1.5, "1", None, True, math.nan):
        with pytest.raises(ConfigurationError) as caught:
            check_integer("hops", value, least=1)
        assert str(caught.value) == f"hops must be an integer of at least 1, not {value!r}"


def test_numbers_within_the_bounds_pass_and_nothing_else():
    for value in (0, 0.0, 0.5, 1, 1.0, np.float32(0.25), Fraction(1, 3)):
        check_number("alpha", value, least=0.0, most=1.0)
    for value in (-1e-9, 1.0000001, math.nan, math.inf, "0.5", None, True, 1j):
        with pytest.raises(ConfigurationError) as caught:
            check_number("alpha", value, least=0.0, most=1.0)
        assert str(caught.value) == f"alpha must be a number from 0.0 to 1.0, not {value!r}"


def test_a_number_without_upper_bound_may_be_large_but_not_infinite():
    check_number("lr", 1e300, least=0.0)
    for value in (math.inf, -1.0):
        with pytest.raises(ConfigurationError, match=f"lr must be a number of at least 0.0, not {value}"):  # fmt: skip  # noqa: E501
            check_number("lr", value, least=0.0)


def test_a_choice_passes_and_anything_else_is_told_the_choices():
    check_choice("edges", "all", ("within", "all"))
    for value in ("al", None, ["all"]):
        with pytest.raises(UnknownNameError) as caught:
            check_choice("edges", value, ("within", "all"))
        assert f"unknown edges {value!r}" in str(caught.value)
        assert str(caught.value).endswith("choose one of all, within")
