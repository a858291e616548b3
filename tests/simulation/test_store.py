"""Traces on disk."""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocator.simulation import store
from allocator.simulation.trace import Trace, TraceError
from tests.examples import examples
from tests.simulation.traces import IN_ONE_FOLDER, same, traces


def three_tasks() -> Trace:
    return Trace(
        resources=("cpus", "mem"),
        users=("bob", "ann"),
        submitted=np.array([0, 5, 5]),
        runtime=np.array([7, 0, 9]),
        user=np.array([0, 1, 0], np.int32),
        job=np.array([4, 4, 6]),
        demand=np.array([[1.0, 0.1], [0.5, 0.0], [0.0, 2.0]]),
        constraint=np.full(3, -1, np.int32),
    )


@examples(60, suppress_health_check=IN_ONE_FOLDER)
@given(trace=traces())
def test_a_stored_trace_is_read_back_bit_for_bit(trace: Trace, tmp_path: Path) -> None:
    store.write(trace, tmp_path / "t.parquet")
    assert same(store.read(tmp_path / "t.parquet"), trace)


@examples(30, suppress_health_check=IN_ONE_FOLDER)
@given(trace=traces(), count=st.integers(0, 25), group=st.integers(1, 7))
def test_row_groups_have_no_effect(trace: Trace, count: int, group: int, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "ROW_GROUP", group)
        store.write(trace, tmp_path / "t.parquet")
        assert same(store.read(tmp_path / "t.parquet"), trace)
        first = store.read(tmp_path / "t.parquet", count)
    assert len(first) == min(count, len(trace))
    assert np.array_equal(first.user, trace.user[:count])
    assert np.array_equal(first.demand, trace.demand[:count])


def test_the_file_is_readable_by_any_sqlite_client(tmp_path: Path) -> None:
    store.write(three_tasks(), tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").to_pydict() == {
        "submitted_us": [0, 5, 5],
        "runtime_us": [7, 0, 9],
        "user": ["bob", "ann", "bob"],
        "job": [4, 4, 6],
        "demand_cpus": [1.0, 0.5, 0.0],
        "demand_mem": [0.1, 0.0, 2.0],
        "constraint": [-1, -1, -1],
    }


def test_recorded_waits_are_a_further_column_that_other_readers_ignore(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    store.write(three_tasks(), path)
    assert store.recorded_waits(path) is None
    store.write_recorded(three_tasks(), path, np.array([-1, -1, -1]))
    assert store.recorded_waits(path) is None
    store.write_recorded(three_tasks(), path, np.array([2_000_000, -1, 500_000]))
    waits = store.recorded_waits(path)
    assert waits is not None
    assert np.array_equal(waits, [2.0, np.nan, 0.5], equal_nan=True)
    assert same(store.read(path), three_tasks())


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_text("submitted_s,runtime_s\n")
    with pytest.raises(TraceError, match=r"t\.parquet is not a trace"):
        store.read(tmp_path / "t.parquet")


def altered(path: Path, table: pa.Table) -> Path:
    store.write(three_tasks(), path)
    metadata = pq.read_schema(path).metadata
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


def table() -> pa.Table:
    return pa.table(
        {
            "submitted_us": [0, 5, 5],
            "runtime_us": [7, 0, 9],
            "user": ["bob", "ann", "bob"],
            "job": [4, 4, 6],
            "demand_cpus": [1.0, 0.5, 0.0],
            "demand_mem": [0.1, 0.0, 2.0],
            "constraint": pa.array([-1, -1, -1], pa.int32()),
        }
    )


def test_a_file_of_another_writer_is_accepted(tmp_path: Path) -> None:
    assert same(store.read(altered(tmp_path / "t.parquet", table())), three_tasks())


@pytest.mark.parametrize(
    ("name", "column", "complaint"),
    [
        ("user", pa.array(["bob", "ann", "eve"]), "user 'eve' is not in its metadata"),
        ("user", pa.array(["bob", "ann", None]), "column user has empty entries"),
        ("job", pa.array([4, None, 6]), "column job has empty entries"),
        ("job", pa.array([4.0, 4.0, 6.0]), "column job is of type double, not int64"),
        ("submitted_us", pa.array([0, 5, 4]), "task 2: submitted before the preceding task"),
    ],
)
def test_errors_name_the_invalid_column(
    name: str, column: pa.Array, complaint: str, tmp_path: Path
) -> None:
    bad = table()
    bad = bad.set_column(bad.schema.get_field_index(name), name, column)
    with pytest.raises(TraceError, match=complaint):
        store.read(altered(tmp_path / "t.parquet", bad))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="it has no column demand_mem"):
        store.read(altered(tmp_path / "t.parquet", table().drop_columns("demand_mem")))


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        ({}, "no key 'longshare'"),
        ({"longshare": '{"format": 2}'}, "it has format 2, this version reads 1"),
        ({"longshare": '{"format": 1}'}, "its metadata cannot be used"),
        ({"longshare": "[]"}, "its metadata cannot be used"),
    ],
)
def test_metadata_are_checked(metadata: dict[str, str], complaint: str, tmp_path: Path) -> None:
    pq.write_table(table().replace_schema_metadata(metadata), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=complaint):
        store.read(tmp_path / "t.parquet")


def test_a_constraint_to_unknown_machines_is_refused(tmp_path: Path) -> None:
    about = (
        '{"format": 1, "resources": ["cpus", "mem"], "users": ["bob", "ann"], "constraints": [[0]]}'
    )
    metadata = {"longshare": about}
    pq.write_table(table().replace_schema_metadata(metadata), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"constraint 0 allows \(0,\) of 0 classes"):
        store.read(tmp_path / "t.parquet")


def test_an_existing_file_is_replaced_only_by_a_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    store.write(three_tasks(), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_tables", lambda _trace, _schema, _waits: iter([table()]))
        with pytest.raises(ValueError, match="schema"):
            store.write(three_tasks(), path)
    assert same(store.read(path), three_tasks())
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.parquet"]


@examples(20, suppress_health_check=IN_ONE_FOLDER)
@given(trace=traces())
def test_a_copy_to_share_is_the_trace_to_the_last_bit_and_mapped(
    trace: Trace, tmp_path: Path
) -> None:
    path, copy = tmp_path / "trace.parquet", Path(mkdtemp(dir=tmp_path), "copy")
    store.write(trace, path)
    store.share(path, copy)
    loaded = store.shared(path, copy)
    assert same(loaded, trace)
    for column in (loaded.submitted, loaded.demand, loaded.user):
        assert isinstance(column.base, np.memmap) or not len(trace), (
            "the column was copied into memory"
        )
        assert not column.flags.writeable or not len(trace)
