//! A transform of a pipeline, whatever it takes.

use std::sync::Arc;

use super::{
    Cost, FieldMistake, FieldUse, FileReaderConfig, FileTransformConfig, Flow, KnownFields, TransformConfig,
    WaitingTransformConfig,
};

/// A configured transform. Its variant determines what it takes.
#[derive(Clone)]
pub enum Step {
    /// A transform of messages.
    Messages(Arc<dyn TransformConfig>),
    /// A transform of messages that waits.
    Waits(Arc<dyn WaitingTransformConfig>),
    /// A file transform.
    Files(Arc<dyn FileTransformConfig>),
    /// A file reader.
    FileReader(Arc<dyn FileReaderConfig>),
    /// Sends the files that have a problem to `errors`. The planner adds it to the end of a pipeline with
    /// `on_error: carry`.
    Marker,
}

impl Step {
    /// Returns the names of its outputs beside the main output and `errors`.
    pub fn outputs(&self) -> Vec<String> {
        match self {
            Step::Messages(config) => config.outputs(),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => Vec::new(),
        }
    }

    /// Returns the names of fields that it reads, and without which it has no effect.
    pub fn fields(&self) -> Vec<String> {
        match self {
            Step::Messages(config) => config.fields(),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => Vec::new(),
        }
    }

    /// How it uses these fields.
    pub fn field_use(&self) -> FieldUse {
        match self {
            Step::Messages(config) => config.field_use(),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => FieldUse::Needed,
        }
    }

    /// Returns what is known of the fields of its messages.
    pub fn fields_after(&self, before: KnownFields) -> KnownFields {
        match self {
            Step::Messages(config) => config.fields_after(before),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => KnownFields::unknown(),
        }
    }

    /// Returns the mistakes that follow from the fields that it receives.
    pub fn check_fields(&self, before: &KnownFields) -> Vec<FieldMistake> {
        match self {
            Step::Messages(config) => config.check_fields(before),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => Vec::new(),
        }
    }

    /// Returns remarks on what is probably not meant so, for the fields that it receives.
    pub fn remarks(&self, before: &KnownFields) -> Vec<FieldMistake> {
        match self {
            Step::Messages(config) => config.remarks(before),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => Vec::new(),
        }
    }

    /// False if its configuration names no intrinsic column, such as `payload`.
    pub fn names_intrinsic(&self) -> bool {
        match self {
            Step::Messages(config) => config.names_intrinsic(),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => false,
        }
    }

    /// True if it must be alone in its segment, which then has one worker.
    pub fn is_sequential(&self) -> bool {
        match self {
            Step::Messages(config) => config.is_sequential(),
            Step::Files(config) => config.cost() == Cost::Alone,
            Step::Waits(_) | Step::FileReader(_) | Step::Marker => false,
        }
    }

    /// True if it sends messages at times of its own.
    pub fn ticks(&self) -> bool {
        match self {
            Step::Messages(config) => config.is_sequential() && config.ticks(),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => false,
        }
    }

    /// The number of messages that it lets pass in a second, if others wait.
    pub fn rate(&self) -> Option<f64> {
        match self {
            Step::Messages(config) => config.rate(),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => None,
        }
    }

    /// True if a replay of dead letters has a state of its own.
    pub fn replays_apart(&self) -> bool {
        match self {
            Step::Messages(config) => config.replays_apart(),
            Step::Waits(_) | Step::Files(_) | Step::FileReader(_) | Step::Marker => false,
        }
    }

    /// True if a message that comes again may have another result than before.
    pub fn remembers(&self) -> bool {
        match self {
            Step::Messages(config) => config.remembers(),
            Step::Files(_) => self.is_sequential(),
            Step::Waits(_) | Step::FileReader(_) | Step::Marker => false,
        }
    }

    /// True if it sends its messages at the end of the input only.
    pub fn needs_end(&self) -> bool {
        matches!(self, Step::Messages(config) if config.needs_end())
    }

    /// How long it takes for an item.
    pub fn cost(&self) -> Cost {
        match self {
            Step::Files(config) => config.cost(),
            Step::FileReader(_) => Cost::Core,
            Step::Messages(_) | Step::Waits(_) | Step::Marker => Cost::Small,
        }
    }

    /// Returns the flow that it takes.
    pub fn takes(&self) -> Flow {
        match self {
            Step::Messages(_) | Step::Waits(_) => Flow::Messages,
            Step::Files(_) | Step::FileReader(_) | Step::Marker => Flow::Files,
        }
    }

    /// Returns the flow of its main output.
    pub fn gives(&self) -> Flow {
        match self {
            Step::Messages(config) => config.gives(),
            Step::Waits(_) | Step::FileReader(_) => Flow::Messages,
            Step::Files(_) | Step::Marker => Flow::Files,
        }
    }

    /// True if it removes the files that sources read.
    pub fn removes_input(&self) -> bool {
        matches!(self, Step::Files(config) if config.removes_input())
    }

    /// True if it begins a segment: no transform is called together with one before it.
    pub fn is_first(&self) -> bool {
        matches!(self, Step::Waits(_) | Step::FileReader(_))
    }

    /// The number of workers, if the step determines it.
    pub fn parallelism(&self) -> Option<usize> {
        match self {
            Step::Waits(config) => config.parallelism(),
            Step::FileReader(config) => config.parallelism(),
            Step::Messages(_) | Step::Files(_) | Step::Marker => None,
        }
    }
}
