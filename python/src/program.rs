//! The program `thalweg`, as it runs from the command line.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Does what a command line says, whose first word is the name of the program, and gives the exit code.
#[pyfunction]
pub fn main(py: Python<'_>, line: Vec<OsString>) -> u8 {
    py.detach(|| thalweg::main(line))
}
