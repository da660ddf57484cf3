"""Tests how tools/size.py attributes code to crates and features."""

import unittest

import size


class Sizes(unittest.TestCase):
    def test_a_function_counts_for_the_first_crate_in_its_name_that_is_not_the_standard_library(self):
        for name, crate in [
            ("parquet::column::writer::ColumnWriter::close", "parquet"),
            ("<sqlparser::ast::Statement as core::fmt::Display>::fmt", "sqlparser"),
            ("<alloc::vec::Vec<arrow_array::array::Array> as core::ops::drop::Drop>::drop", "arrow_array"),
            ("core::ptr::drop_in_place<core::option::Option<tokio::sync::Notify>>", "tokio"),
            ("core::fmt::num::<impl core::fmt::Debug for u32>::fmt", size.GENERIC),
            ("ZSTD_compress", size.FOREIGN),
        ]:
            with self.subTest(name):
                self.assertEqual(size.crate(name), crate)

    def test_parts_of_a_library_are_one_row_and_the_smallest_rows_are_counted(self):
        functions = {"arrow_array": 5, "arrow_cast": 6, "rav1e": 4, size.FOREIGN: 3}
        functions |= {f"small{number}": 2 for number in range(size.ROWS)}
        found = size.rows(functions, {"rav1e": "avif"})
        self.assertEqual(found[:3], [("Arrow", 11, ""), ("`rav1e`", 4, "`avif`"), ("C and assembly", 3, "")])
        self.assertEqual(found[-1], ("3 others", 6, ""))

    def test_a_library_belongs_to_a_feature_only_with_all_its_parts(self):
        self.assertEqual(
            [size.only(features) for features in ({"stores"}, {"stores", None}, {"a", "b"}, {None})], ["`stores`", "", "", ""]
        )
