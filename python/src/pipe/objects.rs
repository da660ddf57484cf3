//! Python objects as components.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;
use thalweg_engine::{Built, Error, Flow, Registry, Role, Step};

use super::batches::Shape;
use super::iterable::IterableObject;
use super::read::{ReaderClass, RemoteReader};
use super::sink::{RemoteWriter, Streaming, WriterClass};
use super::source::ArrowObject;
use super::stream::{Queue, Stream};
use super::transform::Function;
use super::workers::Workers;
use crate::attach::attach;

/// A Python object that is held without the interpreter lock.
pub type Object = Arc<Py<PyAny>>;

/// The exception that ended a run, to be raised as the cause. A later exception replaces an earlier one.
#[derive(Clone, Default)]
pub struct Cause(Arc<Mutex<Option<PyErr>>>);

impl Cause {
    /// Stores an exception, and returns the error for the engine.
    pub fn permanent(&self, error: PyErr) -> Error {
        let failure = Error::permanent(error.to_string());
        *self.0.lock() = Some(error);
        failure
    }

    /// Takes the exception, if there was one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().take()
    }
}

/// A component that is a Python object, as the package passes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Given {
    role: String,
    /// The component's name in the configuration.
    name: String,
    /// The kind of object: `iterable`, `arrow`, `function`, `reader`, `writer` or `stream`.
    sort: String,
    object: Py<PyAny>,
    views: bool,
    payload: bool,
    /// True if a reader receives compressed files decompressed. A reader in this process says so itself.
    unpacks: bool,
    /// The number of worker processes; 0 if the object is called in this process.
    workers: usize,
    /// The command line of a worker process.
    command: Vec<String>,
}

/// Returns the queues of the streams among these objects.
pub fn queues(py: Python<'_>, given: &[Given]) -> Vec<Arc<Queue>> {
    given
        .iter()
        .filter_map(|given| Some(given.object.bind(py).cast::<Stream>().ok()?.get().queue()))
        .collect()
}

/// Adds Python objects to a registry.
pub fn add(py: Python<'_>, registry: Registry, given: Vec<Given>, cause: &Cause) -> PyResult<Registry> {
    let mut registry = registry;
    for given in given {
        registry = one(py, registry, given, cause)?;
    }
    Ok(registry)
}

fn one(py: Python<'_>, registry: Registry, given: Given, cause: &Cause) -> PyResult<Registry> {
    let Given { role, name, sort, object, views, payload, unpacks, workers, command } = given;
    let role = match role.as_str() {
        "source" => Role::Source,
        "sink" => Role::Sink,
        _ => Role::Transform,
    };
    let takes = match (role, sort.as_str()) {
        (Role::Source, _) => None,
        (_, "reader") => Some(Flow::Files),
        _ => Some(Flow::Messages),
    };
    let component = Component {
        name: kept(&name),
        sort,
        stream: object.extract(py).ok(),
        object: Arc::new(object),
        shape: Shape { views, payload },
        unpacks,
        workers,
        command,
        cause: cause.clone(),
    };
    Ok(registry.with(role, takes, component.name, move |options| component.built(options)))
}

/// A component of a registry. The fields are as in [`Given`].
struct Component {
    name: &'static str,
    sort: String,
    object: Object,
    /// The object, if it is a stream.
    stream: Option<Py<Stream>>,
    shape: Shape,
    unpacks: bool,
    workers: usize,
    command: Vec<String>,
    cause: Cause,
}

impl Component {
    /// Returns the component with these options, or a sentence that says what is wrong with them.
    fn built(&self, options: Value) -> Result<Built, String> {
        let (object, cause, shape) = (self.object.clone(), self.cause.clone(), self.shape);
        let sort = self.sort.as_str();
        let is_class = matches!(sort, "reader" | "writer");
        if !is_class && options.as_object().is_none_or(|options| !options.is_empty()) {
            return Err(format!("`{}` takes no options.", self.name));
        }
        let (command, count, unpacks) = (self.command.clone(), self.workers, self.unpacks);
        Ok(match (sort, &self.stream) {
            ("reader", _) if count > 0 => {
                let reader = RemoteReader { command, count, options, unpacks };
                Built::Transform(Step::FileReader(Arc::new(reader)))
            }
            ("writer", _) if count > 0 => {
                Built::Sink(Arc::new(RemoteWriter { command, count, options, shape }))
            }
            ("reader", _) => {
                Built::Transform(Step::FileReader(Arc::new(ReaderClass { class: object, options, cause })))
            }
            ("writer", _) => Built::Sink(Arc::new(WriterClass { class: object, options, shape, cause })),
            ("iterable", _) => Built::Source(Arc::new(IterableObject { object, cause })),
            ("arrow", _) => Built::Source(Arc::new(ArrowObject { object, cause })),
            ("function", _) if count > 0 => {
                Built::Transform(Step::Waits(Arc::new(Workers { command, count, shape })))
            }
            ("stream", Some(stream)) => Built::Sink(Arc::new(Streaming(stream.get().queue()))),
            _ => Built::Transform(Step::Waits(Arc::new(Function { function: object, shape }))),
        })
    }
}

/// Converts options into keyword arguments.
///
/// # Errors
/// If the options are not a mapping.
pub fn arguments<'py>(py: Python<'py>, options: &Value) -> PyResult<Bound<'py, PyDict>> {
    let loads = py.import("json")?.getattr("loads")?;
    Ok(loads.call1((options.to_string(),))?.cast_into::<PyDict>()?)
}

/// Interns a component name. Names live as long as the process, so each distinct name is leaked once; Python
/// code uses few.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name) {
        return known;
    }
    let new: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(new);
    new
}

/// Calls a function of the package's layer between the engine and users' functions (`thalweg._bridge`).
///
/// # Errors
/// The exception of the function, or an error if the interpreter has ended.
pub fn bridged<T>(name: &str, call: impl FnOnce(Python<'_>, Bound<'_, PyAny>) -> PyResult<T>) -> PyResult<T> {
    let called = attach(|py| call(py, py.import("thalweg._bridge")?.getattr(name)?));
    called.unwrap_or_else(|| Err(crate::errors::Error::new_err("the interpreter has ended")))
}
