//! Message transforms under fuzzing: what holds for each of them, whatever the messages are.
//!
//! Every message leaves once, no ack is kept back, and the fields are written as valid JSON. Where a
//! transform promises it, the same messages one by one give the same result as together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use thalweg_engine::{Component, Output, Outputs, Transform, TransformConfig, testing};
use thalweg_record::{Ack, Batch, Outcome};
use thalweg_stream::encode::EncodeConfig;

/// Transforms that are fuzzed together: each gets the main output of the one before it.
pub struct Chain {
    configs: Vec<Box<dyn TransformConfig>>,
    /// The transform, if it is built once for all inputs.
    kept: Option<Mutex<Option<Box<dyn Transform>>>>,
}

impl Chain {
    /// Adds a transform with these options.
    ///
    /// # Panics
    /// If the options are invalid.
    pub fn then<C>(mut self, yaml: &str) -> Self
    where
        C: Component + TransformConfig + DeserializeOwned + JsonSchema + 'static,
    {
        self.configs.push(Box::new(testing::options::<C>(yaml)));
        self
    }

    /// Builds the transform once for all inputs, as compiling its expressions takes longer than an input. It
    /// must be a single one, and must not remember anything.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { kept: Some(Mutex::default()), ..self }
    }
}

/// How many messages leave for each that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// One, which does not depend on other messages.
    OneAlone,
    /// One.
    One,
    /// Any number.
    Any,
}

/// Returns a transform with these options.
///
/// # Panics
/// If the options are invalid.
pub fn transform<C>(yaml: &str) -> Chain
where
    C: Component + TransformConfig + DeserializeOwned + JsonSchema + 'static,
{
    Chain { configs: Vec::new(), kept: None }.then::<C>(yaml)
}

/// Returns a transform with options from an input, or `None` if they are invalid.
pub fn try_transform<C>(yaml: &str) -> Option<Chain>
where
    C: Component + TransformConfig + DeserializeOwned + JsonSchema + 'static,
{
    let options = testing::try_options::<C>(yaml).ok()?;
    options.check().is_empty().then(|| Chain { configs: vec![Box::new(options)], kept: None })
}

/// The most messages that are also tried one by one.
const MOST_ALONE: usize = 20;

/// The messages of each output, as JSON.
pub type Given = BTreeMap<Output, Vec<String>>;

/// Gives `messages` to the transforms, checks the result, and returns it.
///
/// # Panics
/// If a duty of transforms is violated.
pub fn check(chain: &Chain, messages: &[&[u8]], leaves: Leaves) -> Given {
    let together = given(chain, vec![messages]);
    let left: usize = together.values().map(Vec::len).sum();
    if leaves != Leaves::Any {
        assert_eq!(left, messages.len(), "the number of messages that left");
    }
    if leaves == Leaves::OneAlone && (2..=MOST_ALONE).contains(&messages.len()) {
        let alone = given(chain, messages.chunks(1).collect());
        assert_eq!(alone, together, "the messages one by one, and together");
    }
    together
}

fn given(chain: &Chain, batches: Vec<&[&[u8]]>) -> Given {
    let outcomes: Arc<Mutex<Vec<Outcome>>> = Arc::default();
    let count = batches.len();
    let mut given = Given::default();
    let batches = batches.into_iter().map(|batch| {
        let noted = outcomes.clone();
        let ack = Ack::new("test".into(), move |settlement| {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(settlement.outcome);
        });
        testing::batch_with(batch, ack)
    });
    let mut main: Vec<Batch> = batches.collect();
    for (number, config) in chain.configs.iter().enumerate() {
        let kept = chain.kept.as_ref().map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner));
        let known = kept.and_then(|mut kept| kept.take());
        let build = || config.build(&testing::context()).expect("a transform that can be built");
        let mut transform = known.unwrap_or_else(build);
        main = applied(&mut *transform, main, &mut given, number + 1 == chain.configs.len());
        if let Some(kept) = &chain.kept {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(transform);
        }
    }
    let outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(outcomes.len(), count, "an ack was kept back");
    assert!(outcomes.iter().all(|outcome| outcome.is_safe()), "a message was dropped: {outcomes:?}");
    given
}

/// Applies one transform. Returns its main output, or adds it to `given` if it is the last transform.
fn applied(
    transform: &mut dyn Transform,
    batches: Vec<Batch>,
    given: &mut Given,
    is_last: bool,
) -> Vec<Batch> {
    let mut out = Outputs::new("test".into());
    let mut main = Vec::new();
    let mut take = |out: &mut Outputs| {
        for (output, batch) in out.take() {
            assert!(batch.rows() > 0 && batch.fields().num_rows() == batch.rows(), "the rows of {batch:?}");
            match output {
                Output::Main if !is_last => main.push(batch),
                output => given.entry(output).or_default().extend(as_json(batch)),
            }
        }
    };
    for batch in batches {
        transform.apply(batch, &mut out).expect("a transform does not fail as a whole");
        take(&mut out);
        // As the engine does before the next batch.
        while let Some(pause) = out.take_held() {
            std::thread::sleep(pause);
            transform.resume(&mut out).expect("a transform does not fail as a whole");
            take(&mut out);
        }
    }
    transform.finish(&mut out).expect("a transform finishes");
    take(&mut out);
    while out.take_held().is_some() {
        transform.resume(&mut out).expect("a transform does not fail as a whole");
        take(&mut out);
    }
    main
}

/// Writes the fields of each message as JSON, and settles the messages.
///
/// # Panics
/// If what is written is not JSON.
pub fn as_json(batch: Batch) -> Vec<String> {
    let encode = testing::options::<EncodeConfig>("json");
    let mut encode = encode.build(&testing::context()).expect("an encoder");
    let mut written = Vec::new();
    for batch in applied(&mut *encode, vec![batch], &mut Given::default(), false) {
        for line in batch.payload().iter() {
            let line = std::str::from_utf8(line.unwrap_or_default()).expect("JSON is UTF-8");
            assert!(serde_json::from_str::<serde::de::IgnoredAny>(line).is_ok(), "not JSON: {line}");
            written.push(line.to_owned());
        }
        batch.settle(Outcome::Delivered);
    }
    written
}
