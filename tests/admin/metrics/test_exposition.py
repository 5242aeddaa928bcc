"""The text form: prometheus_client's parser reads what was written."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families

from harebell.admin.metrics.exposition import STEP, Page, labels
from harebell.broker.counts import Histogram
from harebell.routing.steps import complete

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS, st.integers(0) | st.floats(allow_nan=False))
def test_any_label_and_value(text: str, value: float) -> None:
    page = Page("p_")
    page.family("things", "gauge", "Things").add(value, labels(vhost=text, queue="q"))
    page.family("empty", "gauge", "Nothing")
    (found,) = text_string_to_metric_families(b"".join(complete(page.encoding())).decode())
    assert (found.name, found.type, found.documentation) == ("p_things", "gauge", "Things")
    (sample,) = found.samples
    assert sample.labels == {"vhost": text, "queue": "q"}
    assert sample.value == value


def test_many_samples_and_a_name_that_is_no_unicode() -> None:
    page = Page("p_")
    for number in range(2 * STEP + 1):
        page.family("n_total", "counter", "Numbers").add(number, labels(n=f"{number}"))
    page.family("odd", "gauge", "Odd").add(1, labels(n="\udcff"))
    numbers, odd = text_string_to_metric_families(b"".join(complete(page.encoding())).decode())
    assert [sample.value for sample in numbers.samples] == list(range(2 * STEP + 1))
    assert numbers.type == "counter"
    assert odd.samples[0].labels == {"n": "?"}


def test_a_histogram() -> None:
    histogram = Histogram((0.5, 1, 10))
    for value in (0.1, 0.5, 2, 20, 20):
        histogram.observe(value)
    page = Page("")
    page.family("sizes", "histogram", "Sizes").add_histogram(histogram)
    (found,) = text_string_to_metric_families(b"".join(complete(page.encoding())).decode())
    values = [(sample.name, sample.labels.get("le"), sample.value) for sample in found.samples]
    assert values == [
        ("sizes_bucket", "0.5", 2), ("sizes_bucket", "1", 2), ("sizes_bucket", "10", 3), ("sizes_bucket", "+Inf", 5),
        ("sizes_sum", None, 42.6), ("sizes_count", None, 5),
    ]  # fmt: skip
