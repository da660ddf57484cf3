"""Tests of `tools/times.py`: what it takes from the pages is there, without a run."""

import tempfile
import unittest
from pathlib import Path

import pages
import times
import times_pages


class Dry(times.Bench):
    """Takes configurations and makes input, but starts nothing."""

    def serve(self, server, port, *arguments):
        self.ports.port(port)

    def prepare(self, configuration):
        self.taken.append(configuration)

    def accept(self, port):
        self.ports.port(port)

    def run(self, label, configuration, size, **options):
        self.taken.append(configuration)

    def time(self, *_):
        return 1, 1, 1


class Times(unittest.TestCase):
    def test_the_pages_have_the_configurations_that_are_measured(self):
        # The others look at what was written.
        for name in times_pages.PAGES.keys() - {"bucket-to-folder", "partitions"}:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                bench = Dry(name, Path(folder), Path("thalweg"), 3)
                bench.taken = []
                with bench.round():
                    times_pages.PAGES[name](bench)
                self.assertTrue(bench.taken)
                for text in bench.taken:
                    self.assertRegex(text, pages.CONFIGURATION)
                    self.assertNotIn("example.com", text)

    def test_lines_are_like_those_of_the_page_with_other_times_and_addresses(self):
        made = times_pages.like('10.0.0.1 08:14:02 "/cart?id=7"\nno more\n')
        self.assertEqual(
            [made(0), made(1), made(200_000)], ['203.0.0.0 00:00:00 "/cart?id=0"', "no more", '203.0.43.142 04:46:40 "/cart?id=200000"']
        )

    def test_the_messages_of_a_generator_are_measured_in_bytes(self):
        self.assertEqual(
            times_pages.payloads('lines:\n - "\\x08\\x07\\x12\\x03Ada"\n - "\\u0002x"\npipelines: "y"'), [b"\x08\x07\x12\x03Ada", b"\x02x"]
        )

    def test_lines_of_a_file_that_gets_its_name_are_counted_once(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = times.Lines(Path(folder), "out-*.txt")
            part = Path(folder) / "out-1.txt.part"
            part.write_text("a\nb")
            self.assertEqual(lines.count(), 1)
            part.write_text("a\nb\nc\n")
            part.rename(Path(folder) / "out-1.txt")
            self.assertEqual(lines.count(), 3)


if __name__ == "__main__":
    unittest.main()
