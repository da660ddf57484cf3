"""Results of svfsc 0.4.1, for what `test_svfsc.py` does not touch."""

import datetime

import thalweg.svfsc as svfsc


def test_the_constants_of_the_module_are_those_of_svfsc() -> None:
    assert svfsc.SVFS_CPP_VERSION == "0.4.1"
    assert (svfsc.SVFS_CPP_VERSION_MAJOR, svfsc.SVFS_CPP_VERSION_MINOR, svfsc.SVFS_CPP_VERSION_PATCH) == (0, 4, 1)
    assert svfsc.SVFS_CPP_VERSION_SUFFIX == ""
    assert (svfsc.SVF_THREAD_SAFE, svfsc.SVFS_THREAD_SAFE, svfsc.PY_THREAD_SAFE) == (0, 0, 1)


def test_equal_bytes_that_overlap_make_one_block() -> None:
    svf = svfsc.cSVF("a")
    svf.write(10, b"abcd")
    svf.write(12, b"cdef")
    assert (svf.blocks(), svf.read(10, 6), svf.num_bytes()) == (((10, 6),), b"abcdef", 6)
    svf.write(8, b"xxabcdefyy")
    assert (svf.blocks(), svf.read(8, 10)) == (((8, 10),), b"xxabcdefyy")
    assert (svf.bytes_write(), svf.count_write()) == (18, 3)


def test_without_comparison_old_bytes_of_the_first_block_stay_and_later_blocks_are_overwritten() -> None:
    svf = svfsc.cSVF("a", 0.0, compare_for_diff=False)
    svf.write(10, b"abcd")
    svf.write(20, b"efgh")
    svf.write(12, b"0123456789XY")
    assert (svf.blocks(), svf.read(10, 14)) == (((10, 14),), b"abcd23456789XY")


def test_a_block_is_erased_by_its_position() -> None:
    svf = svfsc.cSVF("a")
    svf.write(10, b"abcd")
    svf.write(20, b"ef")
    svf.erase(10)
    assert (svf.blocks(), svf.blocks_erased(), svf.bytes_erased(), svf.num_bytes()) == (((20, 2),), 1, 4, 2)


def test_a_system_has_the_options_that_it_was_made_with() -> None:
    assert svfsc.cSVFS().config() == {"compare_for_diff": True, "overwrite_on_exit": False}
    system = svfsc.cSVFS(overwrite_on_exit=True, compare_for_diff=False)
    assert system.config() == {"compare_for_diff": False, "overwrite_on_exit": True}


def test_a_system_counts_and_erases_by_the_id_of_a_file() -> None:
    system = svfsc.cSVFS()
    system.insert("f", 1.0)
    system.write("f", 3, b"abc")
    system.write("f", 10, b"defg")
    assert (system.has_data("f", 3, 3), system.has_data("f", 3, 4)) == (True, False)
    assert (system.count_write("f"), system.bytes_write("f"), system.count_read("f")) == (2, 7, 0)
    assert system.time_read("f") is None
    assert isinstance(system.time_write("f"), datetime.datetime)
    system.read("f", 10, 2)
    assert (system.bytes_read("f"), system.count_read("f")) == (2, 1)
    assert isinstance(system.time_read("f"), datetime.datetime)
    assert (system.lru_punt("f", 4), system.blocks("f")) == (3, ((10, 4),))
    system.erase("f", 10)
    assert (system.blocks("f"), system.num_bytes("f")) == ((), 0)
