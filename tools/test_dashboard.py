"""Tests of tools/dashboard.py: the built dashboard is that of its sources."""

import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

import dashboard


class Dashboard(unittest.TestCase):
    def test_what_is_packed_is_that_of_the_sources(self):
        self.assertEqual(dashboard.FINGERPRINT.read_text(), dashboard.fingerprint())

    def test_a_changed_source_or_file_has_another_fingerprint(self):
        before = dashboard.fingerprint()
        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder)
            for path in dashboard.BUILT.iterdir():
                (built / path.name).write_bytes(path.read_bytes())
            with patch.object(dashboard, "BUILT", built):
                self.assertEqual(dashboard.fingerprint(), before)
                (built / "app.js.gz").write_bytes(b"changed")
                self.assertNotEqual(dashboard.fingerprint(), before)
        with patch.object(dashboard, "OTHER", ()):
            self.assertNotEqual(dashboard.sources(), before.split()[0])

    def test_a_build_with_other_files_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "other.js").write_text("")
            with self.assertRaisesRegex(SystemExit, "other files.*other.js"):
                dashboard.pack(Path(folder))

    def test_no_value_is_inserted_as_html(self):
        for path in (dashboard.ROOT / "dashboard/src").rglob("*.*"):
            text = path.read_text()
            for way in ("{@html", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                self.assertNotIn(way, text, path)

    def test_the_list_of_packages_names_no_registry(self):
        lock = (dashboard.ROOT / "dashboard/package-lock.json").read_text()
        self.assertNotIn('"resolved"', lock)
