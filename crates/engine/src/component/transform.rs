//! Transforms of messages.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use thalweg_record::Batch;

use super::{Context, FieldMistake, FieldUse, Flow, KnownFields};
use crate::{Error, Outputs};

/// Changes batches in memory, without waiting. Each worker of the segment has its own instance.
pub trait Transform: Send {
    /// Receives a batch and sends any number of batches to `out`. Every message must be sent to an output or
    /// to `errors`, or be settled as filtered. A batch that is dropped fails the run.
    ///
    /// # Errors
    /// Only if the transform itself is broken. This stops the run.
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error>;

    /// Called after a call that held messages back: see [`Outputs::hold`]. Sends more of them, and holds the
    /// rest back again. The next batch comes only when nothing is held back, except from a transform of the
    /// same segment that sends several batches at once.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// Called after the last batch. Sends what was held back.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn finish(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// Called in place of [`finish`](Self::finish) if the run was asked to stop before all input was read. A
    /// transform whose [state](Self::state) has what it holds leaves it to the next run.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn stop(&mut self, out: &mut Outputs) -> Result<(), Error> {
        self.finish(out)
    }

    /// Returns the time of the next [`tick`](Self::tick), if one is needed. Asked after each call, and only
    /// of transforms that [tick](TransformConfig::ticks).
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Called when it is [due](Self::due): after a batch, or up to a tenth of a second late if none comes.
    /// Sends what has waited for that time.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn tick(&mut self, out: &mut Outputs) -> Result<(), Error> {
        let _ = out;
        Ok(())
    }

    /// Returns what a later run must know of the messages so far, if that changed since the last call. It is
    /// called at a checkpoint, when all messages that were sent are settled or held back by a component, and
    /// is saved with it. Only of transforms that run in one worker: see
    /// [`is_sequential`](TransformConfig::is_sequential).
    fn state(&mut self) -> Option<Value> {
        None
    }

    /// Called before a checkpoint, while nothing moves, and before [`state`](Self::state). A transform that
    /// collects messages puts them where a later run finds them by the state, and settles their acks. When it
    /// is called again, a checkpoint has the state of the call before.
    ///
    /// # Errors
    /// If that is impossible. This stops the run.
    fn pre_commit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// True if messages have failed whose acks [`pre_commit`](Self::pre_commit) settled: only the last saved
    /// checkpoint has them. No other one is saved then. The failure itself stops the run.
    fn has_failed(&self) -> bool {
        false
    }

    /// True while messages whose acks [`pre_commit`](Self::pre_commit) settled are on their way. The state
    /// does not have them, so it is not saved while messages move.
    fn is_delivering(&self) -> bool {
        false
    }

    /// True if messages that the last saved state has were sent at a [time of its own](Self::tick). Without
    /// this, there is no checkpoint while no messages come: a later run would send them again, and some sinks
    /// make them visible only then.
    fn has_news(&self) -> bool {
        false
    }

    /// True if the state is right only beside positions that cover exactly the messages it has seen, as that
    /// of a counter. No checkpoint has it then while messages move.
    fn is_exact(&self) -> bool {
        true
    }

    /// Receives the state that a former run saved last, before the first batch.
    ///
    /// # Errors
    /// If the state cannot be used. This ends the run before anything is read.
    fn restore(&mut self, saved: Value) -> Result<(), Error> {
        let _ = saved;
        Ok(())
    }
}

/// A configured transform.
pub trait TransformConfig: Send + Sync {
    /// Returns the flow of its main output.
    fn gives(&self) -> Flow {
        Flow::Messages
    }

    /// The number of messages that it lets pass in a second, if others wait. Batches before it are then
    /// small, so that checkpoints move.
    fn rate(&self) -> Option<f64> {
        None
    }

    /// Returns the names of its outputs beside the main output and `errors`. [`Outputs::send_to`] counts in
    /// this order.
    fn outputs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the names of fields that it reads, and without which it has no effect. The summary of a run
    /// names those that no message had.
    fn fields(&self) -> Vec<String> {
        Vec::new()
    }

    /// How it uses the fields that it [names](Self::fields).
    fn field_use(&self) -> FieldUse {
        FieldUse::Needed
    }

    /// Returns what is known of the fields of its messages, on all outputs but `errors`, from what is known
    /// of those that it receives. By default nothing is.
    fn fields_after(&self, before: KnownFields) -> KnownFields {
        let _ = before;
        KnownFields::unknown()
    }

    /// Returns the mistakes that follow from the fields that it receives, beside those [named](Self::fields)
    /// that no message can have: types that do not fit, for instance.
    fn check_fields(&self, before: &KnownFields) -> Vec<FieldMistake> {
        let _ = before;
        Vec::new()
    }

    /// Returns remarks on options that work for messages with these fields, but are probably not meant so. A
    /// check and a run show them.
    fn remarks(&self, before: &KnownFields) -> Vec<FieldMistake> {
        let _ = before;
        Vec::new()
    }

    /// Returns the files that it reads when a run begins, each with the option that names it. A check says
    /// which of them do not exist.
    fn needed_files(&self) -> Vec<(&'static str, PathBuf)> {
        Vec::new()
    }

    /// False if its configuration names no [intrinsic column](thalweg_record::INTRINSIC), such as `payload`.
    /// Some messages of a batch may have a field of that name and others not; a transform that names it then
    /// receives them apart.
    fn names_intrinsic(&self) -> bool {
        true
    }

    /// True if the result for a batch depends on earlier batches. Such a transform runs in one worker and
    /// receives the batches in order; others run in one worker per core.
    fn is_sequential(&self) -> bool {
        false
    }

    /// True if it sends messages at times of its own: see [`Transform::due`]. It must be
    /// [sequential](Self::is_sequential).
    fn ticks(&self) -> bool {
        false
    }

    /// True if a replay of dead letters has a state of its own, which is neither restored nor saved. A
    /// transform that collects messages until a time or a number needs this: letters would be late for the
    /// windows of the service, and the end of the replay would end these windows. False if a replay must know
    /// what the service did: which numbers are taken, or which keys have passed.
    fn replays_apart(&self) -> bool {
        false
    }

    /// True if a message that comes again, because a transaction was aborted, may have another result than
    /// before.
    fn remembers(&self) -> bool {
        self.is_sequential()
    }

    /// True if it sends its messages at the end of the input only. A source that never ends must not lead to
    /// it.
    fn needs_end(&self) -> bool {
        false
    }

    /// Builds the instance of one worker.
    ///
    /// # Errors
    /// If its surroundings do not allow it.
    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error>;
}
