//! A transform of a pipeline, whatever it takes.

use std::sync::Arc;

use super::{BuildFileTransform, BuildTransform, BuildUnpack, Cost, Flow, Mistake};

/// A configured transform: what it is decides what it takes.
#[derive(Clone)]
pub enum Step {
    /// Of messages.
    Messages(Arc<dyn BuildTransform>),
    /// Of files.
    Files(Arc<dyn BuildFileTransform>),
    /// Of files to messages.
    Unpack(Arc<dyn BuildUnpack>),
    /// Sends the files that have a problem to `errors`: the planner puts it at the end of pipelines that carry them.
    Part,
}

impl Step {
    /// What is wrong with it beyond its schema.
    pub fn check(&self) -> Vec<Mistake> {
        match self {
            Step::Messages(config) => config.check(),
            Step::Files(config) => config.check(),
            Step::Unpack(config) => config.check(),
            Step::Part => Vec::new(),
        }
    }

    /// The names of its outputs beside the one that leads on and `errors`.
    pub fn outputs(&self) -> Vec<String> {
        match self {
            Step::Messages(config) => config.outputs(),
            Step::Files(_) | Step::Unpack(_) | Step::Part => Vec::new(),
        }
    }

    /// Whether it must be alone in its segment, which then has one copy.
    pub fn is_sequential(&self) -> bool {
        match self {
            Step::Messages(config) => config.is_sequential(),
            Step::Files(config) => config.cost() == Cost::Alone,
            Step::Unpack(_) | Step::Part => false,
        }
    }

    /// What it takes for an item.
    pub fn cost(&self) -> Cost {
        match self {
            Step::Files(config) => config.cost(),
            Step::Unpack(_) => Cost::Core,
            Step::Messages(_) | Step::Part => Cost::Small,
        }
    }

    /// What it takes.
    pub fn takes(&self) -> Flow {
        match self {
            Step::Messages(_) => Flow::Messages,
            Step::Files(_) | Step::Unpack(_) | Step::Part => Flow::Files,
        }
    }

    /// What goes on from it.
    pub fn gives(&self) -> Flow {
        match self {
            Step::Messages(config) => config.gives(),
            Step::Unpack(_) => Flow::Messages,
            Step::Files(_) | Step::Part => Flow::Files,
        }
    }
}
