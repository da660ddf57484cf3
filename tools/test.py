#!/usr/bin/env python3
"""Runs the tests of the tools: the files `tools/test_*.py`.

    tools/test.py [NAME...]     only those whose names contain NAME

The last line has the form of Rust's test harness, which `.ci/run` counts.
"""

import sys
import unittest
from pathlib import Path


def main():
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{name}*" for name in sys.argv[1:]] or None
    result = unittest.TextTestRunner(verbosity=0).run(loader.discover(str(Path(__file__).parent)))
    # A test with several subtests may fail several times.
    failed = len({str(test).partition(") ")[0] for test, _ in result.failures + result.errors})
    passed = max(result.testsRun - failed, 0)
    print(f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {failed} failed; {len(result.skipped)} ignored")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
