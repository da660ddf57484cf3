//! Configured components of any type: what the graph holds of them.

use super::{
    Context, FileSink, Flow, InFlight, Mistake, Sink, SinkConfig, Source, SourceConfig, Transform,
    TransformConfig,
};
use crate::Error;

/// A configured source of any type.
pub trait BuildSource: Send + Sync {
    /// See [`SourceConfig::check`].
    fn check(&self) -> Vec<Mistake>;
    /// See [`SourceConfig::BLOCKS`].
    fn blocks(&self) -> bool;
    /// See [`SourceConfig::is_auxiliary`].
    fn is_auxiliary(&self) -> bool {
        false
    }
    /// See [`SourceConfig::reads_stdin`].
    fn reads_stdin(&self) -> bool {
        false
    }
    /// See [`SourceConfig::collects_logs`].
    fn collects_logs(&self) -> bool {
        false
    }
    /// See [`SourceConfig::GIVES`].
    fn gives(&self) -> Flow {
        Flow::Messages
    }
    /// See [`SourceConfig::build`].
    ///
    /// # Errors
    /// As there.
    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error>;
}

/// A configured transform of any type.
pub trait BuildTransform: Send + Sync {
    /// Its key in configurations.
    fn kind(&self) -> &'static str;
    /// See [`TransformConfig::check`].
    fn check(&self) -> Vec<Mistake>;
    /// See [`TransformConfig::outputs`].
    fn outputs(&self) -> Vec<String>;
    /// See [`TransformConfig::is_sequential`].
    fn is_sequential(&self) -> bool;
    /// See [`TransformConfig::GIVES`].
    fn gives(&self) -> Flow {
        Flow::Messages
    }
    /// See [`TransformConfig::build`].
    ///
    /// # Errors
    /// As there.
    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error>;
}

/// A configured sink of any type.
pub trait BuildSink: Send + Sync {
    /// See [`SinkConfig::check`].
    fn check(&self) -> Vec<Mistake>;
    /// See [`SinkConfig::encoder`].
    fn encoder(&self) -> Option<Box<dyn BuildTransform>>;
    /// See [`SinkConfig::files`].
    fn files(&self) -> Option<FileSink> {
        None
    }
    /// Whether it takes messages.
    fn takes_messages(&self) -> bool {
        true
    }
    /// See [`SinkConfig::in_flight`].
    fn in_flight(&self) -> InFlight;
    /// See [`SinkConfig::writes_stdout`].
    fn writes_stdout(&self) -> bool {
        false
    }
    /// See [`SinkConfig::build`].
    ///
    /// # Errors
    /// As there.
    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error>;
}

impl<C: SourceConfig> BuildSource for C {
    fn check(&self) -> Vec<Mistake> {
        SourceConfig::check(self)
    }
    fn blocks(&self) -> bool {
        C::BLOCKS
    }
    fn is_auxiliary(&self) -> bool {
        SourceConfig::is_auxiliary(self)
    }
    fn reads_stdin(&self) -> bool {
        SourceConfig::reads_stdin(self)
    }
    fn collects_logs(&self) -> bool {
        SourceConfig::collects_logs(self)
    }
    fn gives(&self) -> Flow {
        C::GIVES
    }
    fn build(&self, context: &Context) -> Result<Box<dyn Source>, Error> {
        SourceConfig::build(self, context)
    }
}

impl<C: TransformConfig> BuildTransform for C {
    fn kind(&self) -> &'static str {
        C::NAME
    }
    fn check(&self) -> Vec<Mistake> {
        TransformConfig::check(self)
    }
    fn outputs(&self) -> Vec<String> {
        TransformConfig::outputs(self)
    }
    fn is_sequential(&self) -> bool {
        TransformConfig::is_sequential(self)
    }
    fn gives(&self) -> Flow {
        C::GIVES
    }
    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        TransformConfig::build(self, context)
    }
}

impl<C: SinkConfig> BuildSink for C {
    fn check(&self) -> Vec<Mistake> {
        SinkConfig::check(self)
    }
    fn encoder(&self) -> Option<Box<dyn BuildTransform>> {
        SinkConfig::encoder(self)
    }
    fn files(&self) -> Option<FileSink> {
        SinkConfig::files(self)
    }
    fn in_flight(&self) -> InFlight {
        SinkConfig::in_flight(self)
    }
    fn writes_stdout(&self) -> bool {
        SinkConfig::writes_stdout(self)
    }
    fn build(&self, context: &Context) -> Result<Box<dyn Sink>, Error> {
        SinkConfig::build(self, context)
    }
}
