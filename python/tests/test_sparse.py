import array
import pickle
import threading

import pytest

import thalweg


def test_bytes_that_touch_are_one_block() -> None:
    file = thalweg.SparseFile("a.tif", 1.5)
    file.write(10, b"abcd")
    file.write(14, bytearray(b"ef"))
    file.write(20, memoryview(b"xyz"))
    file.write(30, array.array("B", [1, 2]))
    assert file.blocks() == [(10, 6), (20, 3), (30, 2)]
    assert (file.read(12, 4), file.read(30, 2)) == (b"cdef", b"\1\2")
    assert (file.id, file.modified, file.bytes(), file.count_blocks(), file.end()) == ("a.tif", 1.5, 11, 3, 32)
    assert file.block_at(15) == (10, 6)
    assert file.block_at(16) is None
    assert repr(file) == "SparseFile('a.tif', 11 bytes held)"


def test_what_is_missing_is_named_and_not_read() -> None:
    file = thalweg.SparseFile("file")
    file.write(0, b"0123")
    with pytest.raises(thalweg.MissingError, match="the 2 at 4 are missing"):
        file.read(2, 4)
    with pytest.raises(thalweg.MissingError):
        file.read(0, 1 << 60)
    with pytest.raises(thalweg.Error):
        file.readinto(2, bytearray(4))
    assert not file.has(2, 4)
    assert file.has(0, 4)


def test_numbers_that_must_not_be_negative_are_named() -> None:
    file = thalweg.SparseFile("file", touches=True)
    file.write(0, b"0123")
    for call in (
        lambda: file.write(-1, b"a"),
        lambda: file.write_many([(0, b"0"), (-1, b"a")]),
        lambda: file.read(-1, 4),
        lambda: file.read_many([(0, 1), (-1, 1)]),
        lambda: file.readinto(-1, bytearray(1)),
        lambda: file.has(-1, 1),
        lambda: file.need(-1, 1),
        lambda: file.need_many([(-1, 1)]),
        lambda: file.plan([(-1, 1)]),
        lambda: file.block_at(-1),
        lambda: file.erase(-1, 1),
        lambda: file.erase_block(-1),
        lambda: file.pin(-1, 1),
    ):
        with pytest.raises(ValueError, match=r"^`position` is -1: it must be 0 or more$"):
            call()
    for call in (
        lambda: file.read(0, -5),
        lambda: file.read_many([(0, -5)]),
        lambda: file.has(0, -5),
        lambda: file.need(0, -5),
        lambda: file.erase(0, -5),
        lambda: file.pin(0, -5),
    ):
        with pytest.raises(ValueError, match=r"^`length` is -5: it must be 0 or more$"):
            call()
    for name, wrong in (
        ("greedy", lambda: file.need(0, 1, -2)),
        ("greedy", lambda: file.need_many([], -2)),
        ("gap", lambda: file.plan([], gap=-2)),
        ("longest", lambda: file.plan([], longest=-2)),
        ("bound", lambda: file.evict_blocks(-2)),
        ("bound", lambda: thalweg.SparseFileSystem().evict_blocks(-2)),
    ):
        with pytest.raises(ValueError, match=rf"^`{name}` is -2: it must be 0 or more$"):
            wrong()
    with pytest.raises(ValueError, match=rf"^`position` is {1 << 64}: it is too large$"):
        file.read(1 << 64, 1)
    assert (file.blocks(), file.read(0, 4)) == ([(0, 4)], b"0123")


def test_needs_and_plans_are_lists_of_positions_and_lengths() -> None:
    file = thalweg.SparseFile("file")
    file.write(10, b"abcd")
    file.write(20, b"efgh")
    assert file.need(0, 40) == [(0, 10), (14, 6), (24, 16)]
    assert file.need(12, 4, 5) == [(14, 5)]
    assert file.need(12, 4, greedy=5) == [(14, 5)]
    assert file.need_many([(30, 4), (0, 4), (2, 6), (12, 4)], 5) == [(0, 8), (14, 5), (30, 5)]
    assert file.need_many(iter([(0, 4)])) == [(0, 4)]
    assert file.plan([(0, 8), (30, 4)], gap=100, longest=16) == [(0, 8), (30, 4)]
    with pytest.raises(TypeError, match="position and the length"):
        file.need_many([(1, 2, 3)])  # type: ignore[list-item]


def test_a_write_that_differs_changes_nothing_unless_it_is_told_to() -> None:
    file = thalweg.SparseFile("file")
    file.write(0, b"abcd")
    with pytest.raises(thalweg.DiffersError, match="the byte at 2"):
        file.write(1, b"bXdef")
    assert file.blocks() == [(0, 4)]
    file.write(1, b"XXX5", overlap="keep")
    assert file.read(0, 5) == b"abcd5"
    file.write(1, b"XX", "replace")
    assert file.read(0, 5) == b"aXXd5"
    with pytest.raises(thalweg.ConfigurationError, match="`agree`, `replace`"):
        file.write(0, b"a", "maybe")  # type: ignore[arg-type]


def test_many_reads_and_writes_go_in_one_call() -> None:
    file = thalweg.SparseFile("file")
    file.write_many([(0, b"ab"), (10, bytearray(b"cd"))])
    file.write_many((at, b"x") for at in (20, 30))
    assert file.read_many([(0, 2), (11, 1), (20, 1)]) == [b"ab", b"d", b"x"]
    assert file.read_many((at, 1) for at in (20, 30)) == [b"x", b"x"]
    with pytest.raises(thalweg.MissingError):
        file.read_many([(0, 2), (5, 1)])


def test_long_pieces_are_read_into_what_is_there() -> None:
    data = bytes(range(256)) * 4096
    file = thalweg.SparseFile("file")
    file.write(5, memoryview(data))
    assert file.read(5, len(data)) == data
    into = bytearray(len(data) - 7)
    assert file.readinto(12, into) == len(into)
    assert into == data[7:]
    with pytest.raises((BufferError, TypeError)):
        file.readinto(12, b"only read")


def test_what_is_let_go_is_counted() -> None:
    file = thalweg.SparseFile("file", touches=True)
    file.write(0, b"abcd")
    file.write(10, b"efgh")
    file.read(0, 2)
    assert file.touches() == [(1, 10), (2, 0)]
    assert file.evict_blocks(5) == 4
    assert file.blocks() == [(0, 4)]
    assert file.erase(1, 2) == 2
    with pytest.raises(ValueError, match="no block starts at 1"):
        file.erase_block(1)
    assert file.erase_block(3) == 1
    counters = file.counters()
    assert (counters["reads"], counters["writes"], counters["bytes_erased"]) == (1, 2, 7)
    assert counters["last_read"] is None
    file.clear()
    assert file.counters()["writes"] == 0


def test_files_under_one_pool_make_room_for_one_another() -> None:
    pool = thalweg.Pool(1 << 20)
    files = thalweg.SparseFileSystem(pool=pool)
    for name in ("a", "b", "c"):
        files.insert(name).write(0, bytes(512 << 10))
    statistics = pool.statistics()
    assert statistics["used"] <= statistics["limit"] == 1 << 20
    assert statistics["evicted_bytes"] > 0
    assert files.bytes() < 3 * (512 << 10)


def test_what_is_pinned_stays() -> None:
    pool = thalweg.Pool(1 << 20)
    file = thalweg.SparseFile("file", pool=pool)
    file.write(0, b"x" * (64 << 10))
    with file.pin(0, 1):
        for at in range(1, 50):
            file.write(at << 16, bytes(64 << 10))
        assert file.has(0, 1)
    for at in range(50, 100):
        file.write(at << 16, bytes(64 << 10))
    assert not file.has(0, 1)


def test_a_system_has_files_by_their_ids() -> None:
    files = thalweg.SparseFileSystem()
    made = files.insert("a", 2.0)
    made.write(0, b"abc")
    assert files.get("a").read(0, 3) == b"abc"
    assert files["a"].modified == 2.0
    assert "a" in files
    assert "b" not in files
    assert list(files) == files.ids() == ["a"]
    assert (len(files), files.bytes(), files.count_blocks()) == (1, 3, 1)
    with pytest.raises(ValueError, match="there is a file `a` already"):
        files.insert("a")
    with pytest.raises(KeyError, match="there is no file `b`"):
        files.get("b")
    assert files.remove("a").bytes() == 3
    assert len(files) == 0


def test_files_and_systems_come_out_of_a_pickle_as_they_were() -> None:
    files = thalweg.SparseFileSystem(overlap="keep")
    file = files.insert("a", 2.0)
    file.write(3, b"abc")
    file.write(300_000, b"d" * 100_000)
    again = pickle.loads(pickle.dumps(file))
    assert (again.id, again.modified, again.blocks()) == ("a", 2.0, file.blocks())
    again.write(3, b"XXXX")
    assert again.read(3, 4) == b"abcX"
    system = pickle.loads(pickle.dumps(files))
    assert system["a"].read(3, 3) == b"abc"


def test_threads_share_a_file() -> None:
    file = thalweg.SparseFile("file")

    def write(lane: int) -> None:
        for at in range(500):
            file.write(at * 80_000 + lane * 10_000, bytes([lane]) * 10_000)

    threads = [threading.Thread(target=write, args=(lane,)) for lane in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.blocks() == [(0, 40_000_000)]
    assert file.read(80_000 * 77 + 29_999, 2) == b"\2\3"
