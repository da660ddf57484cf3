//! The program `thalweg`, as it runs from the command line.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command line `line`, whose first word is the name of the program, and returns the exit code.
#[pyfunction]
pub fn main(py: Python<'_>, line: Vec<OsString>) -> u8 {
    py.detach(|| thalweg::main(line))
}
