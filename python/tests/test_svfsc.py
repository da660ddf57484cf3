import copy
import datetime
import inspect
import pickle
import random
import sys

import pytest

import thalweg
import thalweg.svfsc as svfsc


def made() -> svfsc.cSVF:
    svf = svfsc.cSVF("abc", 1.5)
    svf.write(10, b"abcd")
    svf.write(20, b"efgh")
    return svf


def test_a_file_answers_as_svfsc_does() -> None:
    svf = made()
    assert (svf.id(), svf.file_mod_time(), svf.file_mod_time_matches(1.5)) == ("abc", 1.5, True)
    assert svf.config() == {"compare_for_diff": True, "overwrite_on_exit": False}
    assert svf.read(file_position=11, length=2) == b"bc"
    assert svf.need(0, 40) == svf.need(0, 40, 40) == [(0, 10), (14, 6), (24, 16)]
    assert svf.need(0, 40, greedy_length=41) == [(0, 41)]
    assert svf.need_many([(30, 4), (0, 4), (2, 6), (12, 4)], 5) == [(0, 8), (14, 5), (30, 5)]
    assert svf.blocks() == ((10, 4), (20, 4))
    assert (svf.num_bytes(), svf.num_blocks(), svf.last_file_position()) == (8, 2, 24)
    assert (svf.count_write(), svf.bytes_write(), svf.count_read(), svf.bytes_read()) == (2, 8, 1, 2)
    assert svf.has_data(10, 4)
    assert svf.has_data(14, 0)
    assert not svf.has_data(10, 5)
    assert not svf.has_data(11, 2**64 - 5)
    assert svf.size_of() > 8
    svf.clear()
    assert (svf.blocks(), svf.count_write(), svf.block_touch(), svf.id()) == ((), 0, 0, "abc")
    assert svf.need(5, 0, 7) == [(5, 7)]


def test_the_order_of_use_is_numbered_and_decides_what_goes() -> None:
    svf = made()
    svf.write(30, b"ij")
    svf.read(11, 1)
    assert (svf.block_touch(), svf.block_touches()) == (4, {1: 20, 2: 30, 3: 10})
    svf.write(14, b"------")
    assert svf.block_touches() == {2: 30, 4: 10}
    assert svf.lru_punt(16) == 2
    assert svf.blocks() == ((10, 14),)
    assert svf.lru_punt(1) == 0
    assert (svf.blocks_punted(), svf.bytes_punted(), svf.blocks_erased(), svf.bytes_erased()) == (1, 2, 1, 2)


class Recent:
    """The blocks of a file in the order of their use, as svfsc defines it: the most recently used one last."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int]] = []

    def used(self, block: tuple[int, int]) -> None:
        start, length = block
        others = [one for one in self.blocks if not start <= one[0] < start + length]
        self.blocks = [*others, block]

    def punted(self, bound: int) -> int:
        dropped = 0
        while sum(length for _, length in self.blocks) >= bound and len(self.blocks) > 1:
            dropped += self.blocks.pop(0)[1]
        return dropped


@pytest.mark.parametrize("seed", range(40))
def test_the_blocks_that_go_are_the_least_recently_used_ones(seed: int) -> None:
    chosen = random.Random(seed)
    # Some files have one chunk of 64 KiB, others many.
    apart = chosen.choice([7, 50, 30_000])
    svf, recent = svfsc.cSVF("a"), Recent()

    def block(position: int) -> tuple[int, int]:
        return next((start, length) for start, length in svf.blocks() if start <= position < start + length)

    for _ in range(300):
        place = chosen.randrange(60) * apart
        action = chosen.randrange(10)
        if action < 6:
            svf.write(place, b"x" * chosen.choice([1, 5, apart // 3, apart, apart * 2]))
            recent.used(block(place))
        elif action < 8 and svf.has_data(place, 1):
            svf.read(place, 1)
            recent.used(block(place))
        elif action < 9 and recent.blocks:
            start = chosen.choice(recent.blocks)[0]
            svf.erase(start)
            recent.blocks = [one for one in recent.blocks if one[0] != start]
        else:
            bound = chosen.randrange(20 * apart)
            assert svf.lru_punt(bound) == recent.punted(bound)
        assert svf.blocks() == tuple(sorted(recent.blocks))
    assert list(svf.block_touches().values()) == [start for start, _ in recent.blocks]


@pytest.mark.parametrize("apart", [8, 100_000])
def test_a_file_whose_blocks_were_erased_takes_no_more_memory_than_a_new_one(apart: int) -> None:
    files = svfsc.cSVFS()
    files.insert("abc", 1.0)
    before = files.total_size_of()
    for position in range(0, 100 * apart, apart):
        files.write("abc", position, b"    ")
        files.read("abc", position, 4)
    assert files.total_size_of() > before
    for position, _ in files.blocks("abc"):
        files.erase("abc", position)
    assert files.total_size_of() == before
    assert (files.count_write("abc"), files.bytes_read("abc")) == (100, 400)
    files.write("abc", 0, b"    ")
    assert files.block_touches("abc") == {200: 0}


def test_empty_ranges_are_needed_where_svfsc_says_so() -> None:
    svf = svfsc.cSVF("a")
    assert svf.need_many([(3, 0)]) == [(3, 0)]
    assert svf.need_many([(7, 0), (3, 0), (3, 4)], 9) == [(3, 9)]
    svf.write(10, b"abcd")
    assert svf.need_many([(3, 0), (12, 0), (20, 0)]) == [(3, 0)]
    assert svf.need_many([(10, 0), (14, 2)]) == [(14, 2)]
    assert svf.need_many([(3, 0), (20, 0)], 4) == [(3, 4)]


def test_sums_beyond_64_bits_wrap_as_in_svfsc() -> None:
    last = 2**64 - 1
    svf = svfsc.cSVF("a")
    assert svf.need(last, 5, 9) == [(last, 9)]
    assert svf.need_many([(last, 5), (0, 3)], 4) == [(0, 4), (last, 5)]
    assert not svf.has_data(last, 0)
    with pytest.raises(OSError, match="file is empty"):
        svf.read(last, 0)
    svf.write(10, b"abcd")
    assert svf.need(5, last) == [(5, last)]
    assert svf.need(11, last) == [(10, last - 3)]
    assert svf.need(last, 8) == [(last, 8)]
    with pytest.raises(OSError, match=r"length 5 \(end 4\) .* overrun is 18446744073709551606 bytes"):
        svf.read(last, 5)
    # svfsc takes these bytes for held, because the sum is small. They are not.
    assert not svf.has_data(last, 8)


@pytest.mark.parametrize("method", ["read", "write"])
@pytest.mark.parametrize("kind", [svfsc.cSVF, thalweg.SparseFile])
def test_a_method_without_the_bindings_answers_as_the_one_it_replaces(kind: type, method: str) -> None:
    class Position(int):
        pass

    file = kind("a")
    file.write(0, b"abcd")
    given: list[object] = [1, 2] if method == "read" else [1, b"bc"]
    names = list(inspect.signature(getattr(kind, method)).parameters)[1:3]
    function = getattr(file, method)
    expected = function(*given)
    assert function(**dict(zip(names, given, strict=True))) == expected
    assert function(given[0], **{names[1]: given[1]}) == expected
    assert function(Position(1), given[1]) == expected
    assert function(True, given[1]) == expected
    assert getattr(kind, method).__doc__
    for wrong in [(), (1,), (1, 2, 3, 4), ("1", given[1])]:
        with pytest.raises(TypeError):
            function(*wrong)
    with pytest.raises(TypeError, match=f"descriptor '{method}'"):
        getattr(kind, method)(object(), *given)


def test_the_order_of_use_is_kept_however_often_blocks_are_used() -> None:
    svf = svfsc.cSVF("many")
    for at in range(0, 300, 3):
        svf.write(at, b"x")
    for turn in range(1500):
        for at in range(turn % 2 * 3, 300, 6):
            svf.read(at, 1)
    expected = [*range(0, 300, 6), *range(3, 300, 6)]
    assert list(svf.block_touches().values()) == expected
    assert list(svf.block_touches()) == list(range(75_000, 75_100))


def test_times_are_naive_and_in_utc() -> None:
    svf = svfsc.cSVF("abc")
    assert svf.time_read() is None
    assert svf.time_write() is None
    svf.write(0, b"a")
    written = svf.time_write()
    assert written is not None
    assert written.tzinfo is None
    assert abs(datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None) - written).total_seconds() < 600


@pytest.mark.parametrize(
    ("method", "arguments", "error", "text"),
    [
        ("erase", (0,), OSError, "cp_SparseVirtualFile_erase(): Can not erase from a SVF. ERROR: "
         "SparseVirtualFile::erase(): Non-existent file position 0 at start of block."),
        ("need_many", (((1, 2),),), TypeError, "cp_SparseVirtualFile_need_many_internal: seek_reads is not a list."),
        ("need_many", ([(1, 2), [1, 2]],), TypeError,
         "cp_SparseVirtualFile_need_many_internal: seek_reads[1] is not a tuple."),
        ("need_many", ([(1, 2, 3)],), TypeError,
         "cp_SparseVirtualFile_need_many_internal: seek_reads[0] length 3 is not a tuple of length 2."),
        ("need_many", ([(1.0, 2)],), TypeError,
         "cp_SparseVirtualFile_need_many_internal: can not parse list element[0]."),
        ("read", (10, -1), RuntimeError, "private_SparseVirtualFile_svf_read_as_py_bytes()#455: Could not create bytes "
         "object."),
        ("read", (12, 6), OSError, "private_SparseVirtualFile_svf_read_as_py_bytes()#462: Can not read from a SVF. ERROR: "  # noqa: E501
         "SparseVirtualFile::read(): Requested position 12 length 6 (end 18) overruns block that starts at 10 has size 4 "  # noqa: E501
         "(end 14). Offset into block is 2 overrun is 4 bytes"),
        ("read", (0, 1), OSError, "private_SparseVirtualFile_svf_read_as_py_bytes()#462: Can not read from a SVF. ERROR: "  # noqa: E501
         "SparseVirtualFile::read(): Requested file position 0 precedes first block at 10"),
        ("read", (1.0, 1), TypeError, "argument 1 must be int, not float"),
        ("write", (10, bytearray(b"a")), TypeError, "argument 2 must be bytes, not bytearray"),
        ("write", (10, b"Xbcd"), OSError, "cp_SparseVirtualFile_write: Can not write to a SVF as the given data is different "  # noqa: E501
         "from what is there. ERROR: SparseVirtualFile::write(): Difference at position 10 'X' != 'a' Ordinal 88 != 97"),  # noqa: E501
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_as_svfsc_says_it(
    method: str, arguments: tuple[object, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        getattr(made(), method)(*arguments)
    assert str(raised.value) == text


def test_arguments_are_as_strict_as_there() -> None:
    with pytest.raises(TypeError, match="argument 1 must be str, not int"):
        svfsc.cSVF(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'id'"):
        svfsc.cSVF()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="embedded null character"):
        svfsc.cSVF("a\0b")
    with pytest.raises(RuntimeError, match="__init__"):
        svfsc.cSVF.__new__(svfsc.cSVF).id()
    svf = svfsc.cSVF(id="é", mod_time=2, overwrite_on_exit=True, compare_for_diff=False)
    assert svf.id() == "é"
    assert svf.config() == {"compare_for_diff": False, "overwrite_on_exit": True}
    svf.write(2**64 + 3, b"x")
    assert svf.blocks() == ((3, 1),)


def test_a_write_that_fails_changes_nothing() -> None:
    svf = svfsc.cSVF("abc")
    svf.write(4, b"ab")
    svf.write(8, b"cd")
    for data in (b"ab__cX", b"aX"):
        with pytest.raises(OSError, match="Difference at position"):
            svf.write(4, data)
    assert svf.blocks() == ((4, 2), (8, 2))
    assert (svf.num_bytes(), svf.count_write()) == (4, 2)


def test_the_pickle_is_that_of_svfsc_byte_for_byte() -> None:
    expected = (
        b"\x80\x04\x95r\x00\x00\x00\x00\x00\x00\x00\x8c\x05svfsc\x94\x8c\x04cSVF\x94\x93\x94)\x81\x94}\x94(\x8c\x02id\x94"
        b"\x8c\x03abc\x94\x8c\rfile_mod_time\x94G?\xf8\x00\x00\x00\x00\x00\x00\x8c\x06blocks\x94K\nC\x04abcd\x94\x86\x94K"
        b"\x14C\x04efgh\x94\x86\x94\x86\x94\x8c\x0epickle_version\x94K\x01ub."
    )
    assert sys.modules["svfsc"] is svfsc
    assert pickle.dumps(made(), 4) == expected
    again = pickle.loads(expected)
    assert isinstance(again, svfsc.cSVF)
    assert (again.id(), again.file_mod_time(), again.blocks()) == ("abc", 1.5, ((10, 4), (20, 4)))
    assert again.block_touches() == {0: 10, 1: 20}


def test_blocks_of_one_byte_are_not_remembered_by_the_pickler() -> None:
    svf = svfsc.cSVF("a")
    svf.write(0, b"x")
    svf.write(2, b"x")
    assert pickle.dumps(svf, 4).count(b"C\x01x") == 2


def test_copies_are_by_state() -> None:
    svf = made()
    for other in (copy.copy(svf), copy.deepcopy(svf)):
        other.write(30, b"x")
        assert svf.num_blocks() == 2
        assert other.num_blocks() == 3


def test_where_svfsc_itself_is_there_a_pickle_names_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "svfsc")
    pickled = pickle.dumps(made())
    assert b"thalweg.svfsc" in pickled
    assert pickle.loads(pickled).blocks() == ((10, 4), (20, 4))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"pickle_version": 2}, ValueError, "Got version 2 but expected version 1"),
        ({"id": None}, KeyError, 'No "id" in pickled dict'),
        ({"blocks": None}, KeyError, 'No "blocks" in pickled dict'),
        ({"id": 1}, TypeError, '"id" is not string'),
        ({"file_mod_time": 5j}, TypeError, '"file_mod_time" is not a double'),
        ({"blocks": []}, TypeError, '"blocks" is not a tuple'),
        ({"blocks": ((1, "a"),)}, TypeError, 'Second item of "blocks" is not a bytes object'),
        ({"blocks": ((1, 2, 3),)}, ValueError, "Can not parse block"),
    ],
)
def test_a_wrong_state_is_refused_and_changes_nothing(
    change: dict[str, object], error: type[Exception], text: str
) -> None:
    svf = made()
    state = {key: value for key, value in {**svf.__getstate__(), **change}.items() if value is not None}
    with pytest.raises(error, match=text):
        svf.__setstate__(state)
    with pytest.raises(ValueError, match="is not a dict"):
        svf.__setstate__([])
    assert svf.blocks() == ((10, 4), (20, 4))


def test_classes_can_be_subclassed() -> None:
    class Named(svfsc.cSVF):
        pass

    named = Named("a", 1.0)
    named.write(0, b"a")
    assert isinstance(copy.copy(named), Named)


def test_many_reads_and_writes_go_in_one_call() -> None:
    svf = svfsc.cSVF("a")
    svf.write_many([(0, b"ab"), (5, b"c")])
    assert svf.read_many([(0, 1), (1, 1), (5, 1)]) == [b"a", b"b", b"c"]
    assert (svf.count_read(), svf.block_touches()) == (3, {3: 0, 4: 5})


def test_a_system_answers_as_svfsc_does() -> None:
    files = svfsc.cSVFS()
    files.insert("abc", 1.0)
    files.insert("d", 2.0)
    files.write("abc", 0, b"abcd")
    files.write("abc", 8, b"")
    assert files.read("abc", 2, 2) == b"cd"
    assert files.blocks("abc") == ((0, 4),)
    assert (len(files), sorted(files.keys()), files.has("abc"), files.has("e")) == (2, ["abc", "d"], True, False)
    assert (files.total_bytes(), files.total_blocks(), files.num_bytes("abc"), files.num_blocks("d")) == (4, 1, 4, 0)
    assert files.total_size_of() > files.size_of("abc") > 4
    assert (files.file_mod_time("d"), files.file_mod_time_matches("d", 2.0)) == (2.0, True)
    assert files.need("abc", 2, 4, 5) == [(4, 5)]
    assert files.need_many("abc", [(2, 4)]) == [(4, 2)]
    assert (files.count_read("abc"), files.bytes_write("abc"), files.block_touches("abc")) == (1, 4, {1: 0})
    files.write("abc", 10, b"x")
    assert files.lru_punt_all(3) == 4
    files.remove("d")
    assert len(files) == 1


@pytest.mark.parametrize(
    ("method", "arguments", "error", "text"),
    [
        ("read", ("a", 0, 1), IndexError, 'cp_SparseVirtualFileSystem_svf_read: No SVF ID "a"'),
        ("erase", ("abc", 0), OSError, 'cp_SparseVirtualFileSystem_svf_erase: Can not erase block from a SVF id= "abc". '  # noqa: E501
         "ERROR: SparseVirtualFile::erase(): Non-existent file position 0 at start of block."),
        ("insert", ("abc", 1.0), RuntimeError, "cp_SparseVirtualFileSystem_insert: Can not insert a new Sparse Virtual File "  # noqa: E501
         'ID = "abc". ERROR: SparseVirtualFileSystem::insert(): can not insert "abc"'),
        ("remove", ("a",), IndexError, "cp_SparseVirtualFileSystem_remove: Can not remove a Sparse Virtual File. ERROR: "  # noqa: E501
         'SparseVirtualFileSystem::remove(): id "a" not found.'),
        ("blocks", ("a",), IndexError, "cp_SparseVirtualFileSystem_svf_blocks: No SVF ID a"),
        ("has", (1,), TypeError, "argument 1 must be str, not int"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_system_is_said_as_svfsc_says_it(
    method: str, arguments: tuple[object, ...], error: type[Exception], text: str
) -> None:
    files = svfsc.cSVFS()
    files.insert("abc", 1.0)
    with pytest.raises(error) as raised:
        getattr(files, method)(*arguments)
    assert str(raised.value) == text
