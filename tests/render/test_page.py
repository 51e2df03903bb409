import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.advice.report_page import render_page
from foretell.core.app import App
from foretell.core.model_card import ModelCard
from foretell.core.prediction import Recommendation, Rejection
from foretell.core.render.phrases import clean_block
from foretell.core.run import Allocation, Run, State
from foretell.core.warning import build_warning

NOON = datetime(2025, 3, 14, 12, 0, tzinfo=UTC)
COUNTS = {State.COMPLETED: 312, State.FAILED: 1, State.TIMED_OUT: 1, State.CANCELLED: 0}
VOID = {"meta", "br", "hr", "img", "input", "link"}


class _Reader(HTMLParser):
    """The text of a page, and whether its elements close in the order they open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(page: str) -> _Reader:
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def page(app: App, card: ModelCard, runs: list[Run], recommendation: Recommendation) -> str:
    return render_page(app=app, card=card, runs=runs, counts=COUNTS, recommendation=recommendation, created_at=NOON)


def test_page_without_its_plots(page: str, check_golden: Callable[[str, str], None]) -> None:
    check_golden("report_page.html", re.sub(r"<svg.*?</svg>", "<svg></svg>", page, flags=re.DOTALL))


def test_page_stands_alone(page: str) -> None:
    addresses = re.findall(r"https?://[^\"'<> ]*", re.sub(r"xmlns(:\w+)?=\"[^\"]*\"", "", page))
    assert addresses == []
    assert _read(page).seen.isdisjoint({"script", "link", "img", "iframe"})


def test_page_has_every_plot_once(page: str) -> None:
    assert page.count("<svg") == 4
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', page)) <= set(ids)


def test_page_says_how_many_runs_it_leaves_out(page: str) -> None:
    assert "And 300 older runs." in page
    assert "0 cancelled" not in page


def test_page_without_a_recommendation(app: App, card: ModelCard) -> None:
    page = render_page(app=app, card=card, runs=[], counts={}, recommendation=None, created_at=NOON)
    text = _read(page).text
    assert "Accuracy" in text
    assert "Offers" not in text


@settings(deadline=None, max_examples=60)
@given(odd=st.text(st.characters(), min_size=1) | st.sampled_from(["<script>alert(1)</script>", '"><b>', "{{ 7*7 }}"]))
def test_what_users_wrote_is_escaped(
    odd: str, app: App, card: ModelCard, runs: list[Run], recommendation: Recommendation
) -> None:
    spec = replace(runs[-2].spec, app=odd, parameters={odd: odd}, allocation=Allocation(node_type=odd, partition=odd))
    failed = replace(runs[-2], spec=spec, reason=odd, log_tail=odd)
    page = render_page(
        app=replace(app, name=odd),
        card=replace(card, judgements={}, warnings=(build_warning("column-not-used", odd),), columns=(odd,)),
        runs=[failed],
        counts={State.FAILED: 1},
        recommendation=_free(recommendation, odd),
        created_at=NOON,
    )
    page.encode("utf-8")
    reader = _read(page)
    assert reader.seen.isdisjoint({"script", "b"})
    assert clean_block(odd) in reader.text


def _free(recommendation: Recommendation, odd: str) -> Recommendation:
    """A recommendation of one offer, free, so that no plot is drawn."""
    prediction = replace(
        recommendation.picked.prediction, parameters={odd: odd}, warnings=(build_warning("always-failed", odd),)
    )
    offer = replace(recommendation.picked, prediction=prediction, site=odd, cost=recommendation.picked.cost * 0)
    rejection = Rejection(site=odd, allocation=Allocation(node_type=odd), reason=odd)
    return replace(recommendation, offers=(offer,), picked=offer, why=odd, rejections=(rejection,))


@pytest.mark.chromium
@pytest.mark.parametrize("width", [400, 1200])
def test_page_opens_in_a_browser(page: str, chromium: str, tmp_path: Path, width: int) -> None:
    source, picture = tmp_path / "page.html", tmp_path / "page.png"
    source.write_text(page, encoding="utf-8")
    command = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", f"--window-size={width},1200",
        source.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    pixels = matplotlib.image.imread(picture)
    assert pixels.shape[:2] == (1200, width)
    assert pixels.std() > 0.05
