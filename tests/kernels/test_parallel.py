"""Threads give results in the order of the items, and leave nothing running."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import closing

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sciscidata._support.parallel import map_in_order, read_ahead
from sciscidata.release.export import _batches as run_in_batches
from sciscidata.sources.sciscinet.source import SciSciNetConfig, scan_sciscinet


@pytest.fixture(name="readers")
def readers_fixture() -> Callable[[], list[threading.Thread]]:
    """The readers that this test has begun; those of others may wait for the garbage collector."""
    before = set(threading.enumerate())
    return lambda: [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("sciscidata")]


def wait_for(condition) -> bool:
    until = time.monotonic() + 60
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)
    return condition()


def test_results_come_in_the_order_of_the_items_and_no_more_are_held_than_asked_for(readers):
    begun = []

    def work(number):
        begun.append(number)
        time.sleep(0.01 if number == 0 else 0)
        return -number

    results = map_in_order(work, range(100), 2, n_held=3)
    assert next(results) == 0
    assert wait_for(lambda: len(begun) >= 3)
    time.sleep(0.02)
    assert sorted(begun) == [0, 1, 2]
    assert list(results) == [-number for number in range(1, 100)]
    assert not readers()


def test_an_error_ends_the_work_after_the_results_before_it(readers):
    begun, given_out = [], []

    def work(number):
        begun.append(number)
        if number == 2:
            raise OSError(5, "Input/output error")
        return number

    with pytest.raises(OSError, match="Input/output"):
        given_out.extend(map_in_order(work, iter(range(1_000)), 2))
    assert given_out == [0, 1]
    assert len(begun) < 10
    assert not readers()


def test_an_interrupt_begins_no_further_item_and_leaves_no_thread(readers):
    begun = []

    def work(number):
        begun.append(number)
        time.sleep(0.005)

    def consume():
        with closing(map_in_order(work, range(1_000), 2, n_held=1_000)) as results:
            next(results)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert len(begun) < 500
    assert not readers()


@given(st.lists(st.none() | st.booleans() | st.just([]) | st.integers()), st.integers(1, 4))
def test_items_come_as_they_are_and_in_order(items, n_ahead):
    assert list(read_ahead(iter(items), n_ahead)) == items


def test_an_error_comes_after_the_items_before_it_and_as_it_was(readers):
    def items():
        yield from (1, 2)
        raise OSError(5, "Input/output error", "texts.parquet")

    ahead = read_ahead(items())
    assert [next(ahead), next(ahead)] == [1, 2]
    with pytest.raises(OSError, match="texts") as caught:
        next(ahead)
    assert caught.value.errno == 5
    assert not readers()


def test_who_stops_early_waits_for_the_item_being_read_and_for_no_other(readers):
    is_reading, may_end = threading.Event(), threading.Event()
    read = []

    def items():
        for number in range(100):
            if number == 1:
                is_reading.set()
                assert may_end.wait(60)
            read.append(number)
            yield number

    ahead = read_ahead(items())
    assert next(ahead) == 0
    assert is_reading.wait(60)

    def end_while_it_is_closed():
        wait_for(lambda: ahead.gi_running)
        time.sleep(0.05)
        may_end.set()

    other = threading.Thread(target=end_while_it_is_closed)
    other.start()
    ahead.close()
    assert read == [0, 1]
    assert not readers()
    other.join()


def test_an_interrupt_in_the_consumer_leaves_no_thread(readers):
    def consume():
        for _ in read_ahead(iter(range(100))):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert not readers()


def test_an_export_that_is_cut_short_leaves_no_reader(tmp_path, readers):
    n = 100_000
    ids = {"paperid": range(n)}
    pl.DataFrame({**ids, "year": 1999}).write_parquet(tmp_path / "sciscinet_papers.parquet")
    texts = pl.DataFrame({**ids, "title": "On sleep", "abstract_inverted_index": '{"Why":[0]}'})
    texts.write_parquet(tmp_path / "sciscinet_papertitleabstract.parquet")
    works = scan_sciscinet(SciSciNetConfig(folder=str(tmp_path))).in_text_order()
    taken = []
    with closing(run_in_batches(works)) as batches:
        taken.append(next(batches))
    assert taken[0]["work_id"][0] == 0
    with closing(run_in_batches(works)) as batches:
        assert pl.concat(batches)["work_id"].to_list() == list(range(n))
    del works  # Polars keeps what a query that was stopped has read from
    gc.collect()
    assert wait_for(lambda: not readers())
