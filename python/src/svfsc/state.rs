//! Pickles, identical to those of `svfsc` byte for byte.

use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyString, PyTuple};

use super::File;
use super::held::{Config, Held};
use crate::fresh::wrapped;

const VERSION: u64 = 1;
const WHERE: &str = "cp_SparseVirtualFile___setstate__()";

impl Config {
    /// Converts the arguments of a class, each by its truth value.
    pub fn of(
        overwrite_on_exit: Option<&Bound<'_, PyAny>>,
        compare_for_diff: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let default = Self::default();
        Ok(Self {
            overwrite_on_exit: overwrite_on_exit
                .map_or(Ok(default.overwrite_on_exit), PyAnyMethods::is_truthy)?,
            compare_for_diff: compare_for_diff
                .map_or(Ok(default.compare_for_diff), PyAnyMethods::is_truthy)?,
        })
    }

    pub fn dictionary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let config = PyDict::new(py);
        config.set_item("compare_for_diff", self.compare_for_diff)?;
        config.set_item("overwrite_on_exit", self.overwrite_on_exit)?;
        Ok(config)
    }
}

/// Returns the uses of blocks by number.
pub fn touches<'py>(py: Python<'py>, touches: &[(u64, u64)]) -> PyResult<Bound<'py, PyDict>> {
    let made = PyDict::new(py);
    touches.iter().try_for_each(|(number, position)| made.set_item(number, position))?;
    Ok(made)
}

/// Returns the state of a file with these blocks.
pub fn get<'py>(
    py: Python<'py>,
    id: &str,
    modified: f64,
    blocks: Vec<(u64, Bound<'py, PyBytes>)>,
) -> PyResult<Bound<'py, PyDict>> {
    let state = PyDict::new(py);
    // Interned, so that all pickles of a process share one object, as with `svfsc`.
    state.set_item(intern!(py, "id"), id)?;
    state.set_item(intern!(py, "file_mod_time"), modified)?;
    state.set_item(intern!(py, "blocks"), PyTuple::new(py, blocks)?)?;
    state.set_item(intern!(py, "pickle_version"), VERSION)?;
    Ok(state)
}

/// Restores the file from a state.
pub fn set(state: &Bound<'_, PyAny>) -> PyResult<Held> {
    let state = state
        .cast::<PyDict>()
        .map_err(|_| PyValueError::new_err(format!("{WHERE}#1300: Pickled object is not a dict.")))?;
    let get = |key: &str, line: u32| {
        let missing = || PyKeyError::new_err(format!("{WHERE}#{line}: No \"{key}\" in pickled dict."));
        state.get_item(key)?.ok_or_else(missing)
    };
    let version = get("pickle_version", 1308)?;
    if wrapped(&version) != Some(VERSION) {
        return Err(PyValueError::new_err(format!(
            "{WHERE} Pickle version mismatch. Got version {version} but expected version {VERSION}."
        )));
    }
    let id = get("id", 1320)?;
    let id = id
        .cast::<PyString>()
        .map_err(|_| PyTypeError::new_err(format!("{WHERE}#1324: \"id\" is not string.")))?;
    let modified = get("file_mod_time", 1332)?;
    let modified = modified
        .cast::<PyFloat>()
        .map_err(|_| PyTypeError::new_err(format!("{WHERE}#1338: \"file_mod_time\" is not a double.")))?;
    let mut made = Held::new(id.to_str()?, modified.extract()?, Config::default());
    let blocks = get("blocks", 1367)?;
    let blocks = blocks
        .cast::<PyTuple>()
        .map_err(|_| PyTypeError::new_err(format!("{WHERE}#1371: \"blocks\" is not a tuple.")))?;
    for block in blocks {
        let parts = || {
            let pair = block.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2)?;
            Some((wrapped(&pair.get_item(0).ok()?)?, pair.get_item(1).ok()?))
        };
        let (position, bytes) = parts().ok_or_else(|| {
            PyValueError::new_err(format!("{WHERE}#1382: Can not parse block (fpos, bytes) tuple."))
        })?;
        let bytes = bytes.cast::<PyBytes>().map_err(|_| {
            PyTypeError::new_err(format!("{WHERE}#1389: Second item of \"blocks\" is not a bytes object."))
        })?;
        made.write(position, bytes.as_bytes()).map_err(PyValueError::new_err)?;
    }
    Ok(made)
}

/// Returns the parts of a pickle. The class is named `svfsc.cSVF`, so that either package can read the
/// pickle. If `svfsc` itself is installed, that name is another class, and a function of this package is
/// named instead.
pub fn reduce<'py>(file: &Bound<'py, File>, protocol: u8) -> PyResult<Bound<'py, PyAny>> {
    let py = file.py();
    let class = file.get_type();
    let named = py.import("sys")?.getattr("modules")?.call_method1("get", ("svfsc",))?;
    let is_ours = |named: &Bound<'py, PyAny>| named.getattr("cSVF").is_ok_and(|named| named.is(&class));
    if class.is(py.get_type::<File>()) && !is_ours(&named) {
        let make = py.import("thalweg.svfsc")?.getattr("_made")?;
        let state = file.call_method0("__getstate__")?;
        return Ok((make, PyTuple::empty(py), state).into_pyobject(py)?.into_any());
    }
    py.get_type::<PyAny>().call_method1("__reduce_ex__", (file, protocol))
}
