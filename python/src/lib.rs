//! thalweg as a Python module, `thalweg._thalweg`. Users import the package `thalweg` around it.
//!
//! Each part of the package is one Rust module here, which adds its classes and functions to the single
//! Python module. Code that waits or computes releases the interpreter lock meanwhile ([`Python::detach`]).
//!
//! See docs/decisions/045-the-python-package-is-part-of-the-product.md.

mod attach;
mod buffer;
mod copies;
mod errors;
mod evaluation;
mod event_loop;
mod fresh;
mod heap;
mod logs;
mod main_only;
mod natural;
mod pairs;
mod pipe;
mod program;
mod quick;
mod remote;
mod runtime;
mod sparse;
mod svfsc;

use pyo3::prelude::*;

/// The compiled part of the package `thalweg`.
#[pymodule]
mod _thalweg {
    use super::*;

    #[pymodule_export]
    use crate::copies::{copy, copy_options};
    #[pymodule_export]
    use crate::errors::Error;
    #[pymodule_export]
    use crate::evaluation::{ConcurrentProc, Waiter, evaluate, forget_loop};
    #[pymodule_export]
    use crate::event_loop::{EventLoopCore, Wait, wait};
    #[pymodule_export]
    use crate::logs::flush_logs;
    #[pymodule_export]
    use crate::main_only::main_only;
    #[pymodule_export]
    use crate::pipe::{Batch, Run, Stream, as_yaml, check, check_nesting, end_with_parent, kinds, start};
    #[pymodule_export]
    use crate::program::{check_command, convert_command, copy_command, errors_command, run_command};
    #[pymodule_export]
    use crate::remote::RemoteFile;
    #[pymodule_export]
    use crate::sparse::{DiffersError, MissingError, Pin, Pool, SparseFile, SparseFileSystem};
    #[pymodule_export]
    use crate::svfsc::{File, FileSystem};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::sparse::quicken(module.py())?;
        crate::svfsc::quicken(module.py())
    }

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "this is its name in Python")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
