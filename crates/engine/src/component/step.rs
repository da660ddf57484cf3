//! A transform of a pipeline, whatever it takes.

use std::sync::Arc;

use super::{BuildFileReader, BuildFileTransform, BuildTransform, BuildWaiting, Cost, Flow, Mistake};

/// A configured transform: what it is decides what it takes.
#[derive(Clone)]
pub enum Step {
    /// Of messages.
    Messages(Arc<dyn BuildTransform>),
    /// Of messages, and it waits while it is at it.
    Waits(Arc<dyn BuildWaiting>),
    /// Of files.
    Files(Arc<dyn BuildFileTransform>),
    /// Of files to messages.
    FileReader(Arc<dyn BuildFileReader>),
    /// Sends the files that have a problem to `errors`: the planner puts it at the end of pipelines that carry them.
    Marker,
}

impl Step {
    /// What is wrong with it beyond its schema.
    pub fn check(&self) -> Vec<Mistake> {
        match self {
            Step::Messages(config) => config.check(),
            Step::Waits(config) => config.check(),
            Step::Files(config) => config.check(),
            Step::FileReader(config) => config.check(),
            Step::Marker => Vec::new(),
        }
    }

    /// The names of its outputs beside the one that leads on and `errors`.
    pub fn outputs(&self) -> Vec<String> {
        match self {
            Step::Messages(config) => config.outputs(),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => Vec::new(),
        }
    }

    /// Whether it must be alone in its segment, which then has one copy.
    pub fn is_sequential(&self) -> bool {
        match self {
            Step::Messages(config) => config.is_sequential(),
            Step::Files(config) => config.cost() == Cost::Alone,
            Step::Waits(_) | Step::FileReader(_) | Step::Marker => false,
        }
    }

    /// What it takes for an item.
    pub fn cost(&self) -> Cost {
        match self {
            Step::Files(config) => config.cost(),
            Step::FileReader(_) => Cost::Core,
            Step::Messages(_) | Step::Waits(_) | Step::Marker => Cost::Small,
        }
    }

    /// What it takes.
    pub fn takes(&self) -> Flow {
        match self {
            Step::Messages(_) | Step::Waits(_) => Flow::Messages,
            Step::Files(_) | Step::FileReader(_) | Step::Marker => Flow::Files,
        }
    }

    /// What goes on from it.
    pub fn gives(&self) -> Flow {
        match self {
            Step::Messages(config) => config.gives(),
            Step::Waits(_) | Step::FileReader(_) => Flow::Messages,
            Step::Files(_) | Step::Marker => Flow::Files,
        }
    }

    /// Whether it begins a segment: nothing before it is called together with it.
    pub fn is_first(&self) -> bool {
        matches!(self, Step::Waits(_) | Step::FileReader(_))
    }

    /// How many copies of it there are to be, where it says so.
    pub fn copies(&self) -> Option<usize> {
        match self {
            Step::Waits(config) => config.copies(),
            Step::Messages(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => None,
        }
    }
}
