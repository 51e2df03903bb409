"""Units are parsed as people write them; what is rendered can be parsed again; anything else is a clear error."""

import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretell.core.units import (
    describe_money,
    parse_bytes,
    parse_duration,
    parse_money,
    parse_rate,
    parse_share,
    render_bytes,
    render_clock,
    render_duration,
    render_link,
    render_money,
    render_most_money,
    render_price,
    render_rate,
)

_DAY = 86400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (90, 90), (0.5, 0.5), ("90s", 90), ("10m", 600), ("10 min", 600), ("1h30m", 5400), ("1.5h", 5400),
        ("250ms", 0.25), ("2d", 2 * _DAY), ("1w", 7 * _DAY), ("02:30:00", 9000), ("10:30", 630),
        ("1-00:00:00", _DAY), ("1-12:30", _DAY + 45000), (" 4 min 10 s ", 250),
    ],
)  # fmt: skip
def test_durations_people_write(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1024, 1024), ("512M", 512 * 2**20), ("4GB", 2**32), ("1.5 GiB", 3 * 2**29), ("2t", 2**41),
        (".5k", 512), ("1b", 1), (0.5, 1),
    ],
)  # fmt: skip
def test_sizes_people_write(text: str | float, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), (0.05, 0.05), ("0.05", 0.05), (" 99.9 % ", 0.999)])
def test_shares_people_write(text: str | float, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize(("text", "amount"), [("5", "5"), ("$0.25", "0.25"), (0, "0"), (0.1, "0.1"), (Decimal(3), "3")])
def test_money_people_write(text: str | float | Decimal, amount: str) -> None:
    assert parse_money(text) == Decimal(amount)


_PARSERS = (parse_duration, parse_bytes, parse_share, parse_money)
_NONSENSE = ["", " ", "-1", "nan", "inf", "abc", "1x", "1h-30m", "1:2:3:4", "--", "1e5 parsecs", "ünï", "\0", "5 5 %"]


@pytest.mark.parametrize("parse", _PARSERS)
@pytest.mark.parametrize("text", [*_NONSENSE, float("nan"), float("inf"), -1, -0.5])
def test_nonsense_is_named_with_an_example(parse: Callable[[str | float], object], text: str | float) -> None:
    with pytest.raises(ValueError, match="write for example") as caught:
        parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("parse", "text", "wanted"),
    [(parse_bytes, "4", "4GB"), (parse_bytes, " 1.5 ", "1.5GB"), (parse_duration, "20", "20s, 20m or 20h")],
)
def test_a_number_without_a_unit_is_refused_with_one(
    parse: Callable[[str | float], object], text: str, wanted: str
) -> None:
    with pytest.raises(ValueError, match=f"with a unit; write for example {wanted}"):
        parse(text)


def test_the_last_part_needs_a_unit_too() -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse_duration("1h30")


@pytest.mark.parametrize("parse", [parse_duration, parse_bytes, parse_share])
@pytest.mark.parametrize(
    "text", [10**400, -(10**400), "9" * 400, "9" * 400 + ":00", "9" * 5000 + ":00", "9" * 305 + "p"]
)
def test_huge_numbers_are_refused(parse: Callable[[str | float], object], text: str | float) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse(text)


@given(
    text=st.one_of(st.text(), st.from_regex(r"[\d.:\-smhdgGkb% ]{1,12}", fullmatch=True), st.floats(), st.integers())
)
def test_any_text_is_read_or_refused(text: str | float) -> None:
    for parse, holds in (
        (parse_duration, lambda value: 0 < value < math.inf),
        (parse_bytes, lambda value: isinstance(value, int) and value > 0),
        (parse_share, lambda value: 0 < value < 1),
        (parse_money, lambda value: isinstance(value, Decimal) and value >= 0),
    ):
        try:
            value = parse(text)
        except ValueError:
            with pytest.raises(ValueError, match="write for example"):
                parse(text)
        else:
            assert holds(value)


@given(seconds=st.floats(0.01, 3e8))
@example(seconds=0.9997)
@example(seconds=59.96)
@example(seconds=3599.6)
@example(seconds=48 * 3600 - 1)
def test_rendered_durations_read_back_as_nearly_the_same(seconds: float) -> None:
    assert parse_duration(render_duration(seconds)) == pytest.approx(seconds, rel=0.06)


@given(seconds=st.floats(60, 3e8))
def test_rendered_durations_never_carry_a_full_unit(seconds: float) -> None:
    assert not any(full in render_duration(seconds).split(" ", 2)[2] for full in ("60", "1000"))


@given(size=st.floats(1, 2**60))
def test_rendered_sizes_read_back_as_nearly_the_same(size: float) -> None:
    assert parse_bytes(render_bytes(size)) == pytest.approx(size, rel=0.01, abs=0.5)


@given(seconds=st.floats(0.001, 1e8))
def test_clock_is_rounded_up_to_the_minute(seconds: float) -> None:
    asked = parse_duration(render_clock(seconds))
    assert asked % 60 == 0
    assert seconds - 1e-6 <= asked < max(seconds + 60, 61)


@given(amount=st.decimals(0, 10**9, places=6))
def test_rendered_prices_read_back_as_nearly_the_same(amount: Decimal) -> None:
    read = parse_money(render_price(amount).replace(",", ""))
    assert float(read) == pytest.approx(float(amount), rel=0.05, abs=1e-8)


@given(amount=st.decimals("0.01", 10**9, places=6))
def test_charges_are_rounded_to_the_cent(amount: Decimal) -> None:
    assert abs(parse_money(render_money(amount).replace(",", "")) - amount) <= Decimal("0.005")


@given(amount=st.decimals(0, 10**9, places=6))
def test_the_most_that_is_charged_is_rounded_up(amount: Decimal) -> None:
    assert 0 <= parse_money(render_most_money(amount).replace(",", "")) - amount < Decimal("0.01")


@pytest.mark.parametrize(
    ("amount", "currency", "shown", "said"),
    [
        ("0.0000081", "USD", "< $0.01", "less than a cent"),
        ("0.00999", "SU", "< 0.01 SU", "less than 0.01 SU"),
        ("0", "USD", "$0.00", "$0.00"),
        ("0.01", "EUR", "0.01 EUR", "0.01 EUR"),
        ("1234.567", "USD", "$1,234.57", "$1,234.57"),
    ],
)
def test_less_than_a_cent_is_said_so(amount: str, currency: str, shown: str, said: str) -> None:
    assert render_money(Decimal(amount), currency) == shown
    assert describe_money(Decimal(amount), currency) == said


def test_currency_follows_the_amount() -> None:
    assert render_money(Decimal("3.1"), "SU") == "3.10 SU"


@pytest.mark.parametrize("render", [render_duration, render_bytes, render_money, render_price])
def test_what_is_not_finite_is_unknown(render: Callable[[float], str]) -> None:
    assert {render(math.inf), render(math.nan)} == {"unknown"}


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("10Gb", 1.25e9),
        ("500 Mb/s", 6.25e7),
        ("500Mbit/s", 6.25e7),
        ("100Mbps", 1.25e7),
        ("1.2GB/s", 1.2e9),
        ("64kb", 8e3),
        ("8b", 1.0),
        (".5Tb", 6.25e10),
    ],
)
def test_rates_are_in_bits_or_bytes(text: str, bytes_per_s: float) -> None:
    assert parse_rate(text) == pytest.approx(bytes_per_s)


@pytest.mark.parametrize(
    "text", ["", "10", "10 apples", "Gb", "-1Gb", "0Gb", "1e3Mb", "10Gb/h", f"{'9' * 400}Gb", "nan"]
)
def test_what_is_no_rate_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate; write for example 10Gb"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [
        (0, "0 B/s"),
        (850, "850 B/s"),
        (999.7, "1 kB/s"),
        (2_400_000, "2.4 MB/s"),
        (999_900, "1 MB/s"),
        (125e6, "125 MB/s"),
        (1.25e9, "1.25 GB/s"),
    ],
)
def test_rates_are_in_powers_of_1000(bytes_per_s: float, text: str) -> None:
    assert render_rate(bytes_per_s) == text


@given(rate=st.floats(1e3, 9e11))
def test_rendered_rates_read_back_as_nearly_the_same(rate: float) -> None:
    assert parse_rate(render_link(rate)) == pytest.approx(rate, rel=0.01)
    assert parse_rate(render_rate(rate)) == pytest.approx(rate, rel=0.01)
