//! Custom readers.

use std::marker::PhantomData;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thalweg_engine::{
    Component, Context, Error, FileError, FileReader, FileReaderConfig, Mistake, Reading, Received,
    SourceOutput,
};
use thalweg_record::{File, ViewBuilder};

use crate::plain::Plain;
use thalweg_codec::decompress::Compression;
use thalweg_stream::arenas::Arenas;

/// Reads rows from the bytes of files. Each worker has its own instance, which reads one file after the
/// other.
pub trait Reader: Sized + Send + 'static {
    /// The key in configurations.
    const NAME: &'static str;

    /// True if compressed files (gzip, zstd) are recognised by their first bytes and decompressed before
    /// `read`.
    const UNPACKS: bool = false;

    /// The options in a configuration. `serde_json::Value` accepts anything, `()` nothing.
    type Options: DeserializeOwned + JsonSchema + Send + Sync + 'static;

    /// Creates an instance.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the options.
    fn new(options: &Self::Options) -> Result<Self, String>;

    /// Called when a file begins.
    fn begin(&mut self) {}

    /// Reads rows from `bytes`, which begin where the previous call ended. Bytes that a call does not use are
    /// passed again, with more bytes after them. If `at_end` is true, all bytes must be used.
    ///
    /// # Errors
    /// Why the rest of the file cannot be read. The file becomes a dead letter with that reason. The rows
    /// read before are sent.
    fn read(&mut self, bytes: &[u8], at_end: bool) -> Result<Rows, String>;
}

/// The result of [`Reader::read`].
#[derive(Debug, Default)]
pub struct Rows {
    /// The rows, if there are any.
    pub rows: Option<RecordBatch>,
    /// The number of bytes used, from the first on.
    pub used: usize,
}

/// Why [`ReadRows::read`] returned no rows.
#[derive(Debug)]
pub enum ReadError {
    /// The rest of the file cannot be read, for this reason.
    Rejected(String),
    /// The instance no longer knows what it read, for this reason: its process died. The file is read once
    /// more from its start. The rows that were sent before are skipped.
    Lost(String),
    /// The run cannot continue.
    Failed(Error),
}

/// An instance of a [`Reader`], or of a reader that has no Rust type of its own (in Python).
#[async_trait]
pub trait ReadRows: Send {
    /// See [`Reader::begin`].
    fn begin(&mut self);

    /// See [`Reader::read`].
    ///
    /// # Errors
    /// See [`ReadError`].
    async fn read(&mut self, bytes: &Buffer, at_end: bool) -> Result<Rows, ReadError>;

    /// Called after the last file.
    async fn finish(&mut self) {}
}

#[async_trait]
impl<R: Reader> ReadRows for R {
    fn begin(&mut self) {
        Reader::begin(self);
    }

    async fn read(&mut self, bytes: &Buffer, at_end: bool) -> Result<Rows, ReadError> {
        Reader::read(self, bytes, at_end).map_err(ReadError::Rejected)
    }
}

/// Returns a file reader for an instance. For `unpacks` see [`Reader::UNPACKS`].
pub fn unpacking(reader: impl ReadRows + 'static, unpacks: bool, context: &Context) -> Box<dyn FileReader> {
    Box::new(Unpacking {
        reader,
        unpacks,
        arenas: Arenas::new(context.batch_bytes),
        memory: context.memory.budget().limit(),
    })
}

/// A configured [`Reader`].
#[derive(Deserialize, JsonSchema)]
#[serde(transparent, bound = "")]
#[schemars(bound = "R::Options: JsonSchema")]
pub struct WithReader<R: Reader> {
    options: R::Options,
    #[serde(skip)]
    #[schemars(skip)]
    reader: PhantomData<fn() -> R>,
}

impl<R: Reader> Component for WithReader<R> {
    const NAME: &'static str = R::NAME;
    const EXAMPLE: &'static str = "";

    fn check(&self) -> Vec<Mistake> {
        R::new(&self.options).err().map(|why| Mistake::new("", why)).into_iter().collect()
    }
}

impl<R: Reader> FileReaderConfig for WithReader<R> {
    fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
        let reader = R::new(&self.options).map_err(Error::permanent)?;
        Ok(unpacking(reader, R::UNPACKS, context))
    }
}

struct Unpacking<R> {
    reader: R,
    unpacks: bool,
    arenas: Arenas,
    /// The limit of the whole budget, in bytes.
    memory: usize,
}

#[async_trait]
impl<R: ReadRows> FileReader for Unpacking<R> {
    async fn unpack(&mut self, file: &mut File, out: &mut SourceOutput) -> Result<(), FileError> {
        let mut sent = 0;
        if self.read(file, out, &mut sent).await?.is_some()
            && let Some(why) = self.read(file, out, &mut sent).await?
        {
            return Err(FileError::rejected(format!("{why}, also when the file was read again")));
        }
        Ok(())
    }

    async fn finish(&mut self) {
        self.reader.finish().await;
    }
}

impl<R: ReadRows> Unpacking<R> {
    /// Reads a file, and sends its rows except for the first `sent`, which it adds to. Returns why the reader
    /// lost the file, if it did.
    async fn read(
        &mut self,
        file: &File,
        out: &mut SourceOutput,
        sent: &mut usize,
    ) -> Result<Option<String>, FileError> {
        let compression = if self.unpacks { Compression::Auto } else { Compression::None };
        let mut plain = Plain::open(file, compression, 0, self.memory, out)?;
        self.reader.begin();
        let mut before = 0;
        loop {
            let buffer = plain.more(&mut self.arenas, out).await;
            plain.check()?;
            let Rows { rows, used } = match self.reader.read(&buffer, plain.is_end()).await {
                Ok(rows) => rows,
                Err(ReadError::Rejected(why)) => return Err(FileError::rejected(why)),
                Err(ReadError::Failed(error)) => return Err(error.into()),
                Err(ReadError::Lost(why)) => return Ok(Some(why)),
            };
            if let Some(rows) = rows {
                let skipped = rows.num_rows().min(*sent - before);
                let new = rows.num_rows() - skipped;
                before += skipped + new;
                *sent += new;
                if new > 0 {
                    // The rows count as they are sent, however many a slice makes. This byte is released with
                    // them: the reader waits for capacity before it reads more.
                    let held = out.share().claim(1).freeze(vec![0]);
                    out.send(received(rows.slice(skipped, new), held)).await?;
                }
            }
            let rest = buffer.get(used..).unwrap_or_default();
            if plain.is_end() {
                return match rest.len() {
                    0 => Ok(None),
                    left => Err(FileError::rejected(format!(
                        "the last {left} bytes of the file are not a complete row"
                    ))),
                };
            }
            plain.carry(rest);
        }
    }
}

/// Returns rows as messages with fields and empty payloads, which keep `held`.
fn received(rows: RecordBatch, held: Buffer) -> Received {
    let mut payload = ViewBuilder::over(&[held], rows.num_rows());
    (0..rows.num_rows()).for_each(|_| payload.push(b""));
    let reading = Reading { payload: payload.finish(), path: None, positions: None, checkpoint: None };
    Received { reading, fields: Some(rows) }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};
    use proptest::prelude::*;
    use thalweg_engine::testing::{Arrived, context, file_of, file_output, options, unpack};
    use thalweg_record::{Budget, Outcome};

    use super::*;
    use crate::ahead::testing::sliced;

    /// Reads numbers of eight bytes.
    struct Numbers;

    impl Reader for Numbers {
        const NAME: &'static str = "numbers";
        type Options = serde_json::Value;

        fn new(options: &Self::Options) -> Result<Self, String> {
            if options.is_object() { Ok(Self) } else { Err("It takes no options.".to_owned()) }
        }

        fn read(&mut self, bytes: &[u8], _: bool) -> Result<Rows, String> {
            let (numbers, _) = bytes.as_chunks::<8>();
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(
                numbers.iter().map(|number| i64::from_le_bytes(*number)),
            ));
            let rows = RecordBatch::try_from_iter([("number", column)]).map_err(|error| error.to_string())?;
            Ok(Rows { rows: Some(rows), used: numbers.len() * 8 })
        }
    }

    #[tokio::test]
    async fn what_is_left_at_the_end_is_told() {
        let read = unpack::<WithReader<Numbers>>("{}", &mut file_of("a", &[1; 10]), 1 << 10).await;
        assert_eq!(read.rows().len(), 1);
        assert_eq!(read.problem.unwrap().reason, "the last 2 bytes of the file are not a complete row");
    }

    /// Reads numbers, but loses the file at a call, some times.
    #[derive(Debug, Clone, Deserialize, JsonSchema)]
    struct Losing {
        call: usize,
        times: usize,
    }

    impl Component for Losing {
        const NAME: &'static str = "losing";
        const EXAMPLE: &'static str = "";
    }

    impl FileReaderConfig for Losing {
        fn build(&self, context: &Context) -> Result<Box<dyn FileReader>, Error> {
            Ok(unpacking(Loser { left: self.clone(), calls: 0 }, false, context))
        }
    }

    struct Loser {
        left: Losing,
        calls: usize,
    }

    #[async_trait]
    impl ReadRows for Loser {
        fn begin(&mut self) {
            self.calls = 0;
        }

        async fn read(&mut self, bytes: &Buffer, at_end: bool) -> Result<Rows, ReadError> {
            if self.calls == self.left.call && self.left.times > 0 {
                self.left.times -= 1;
                return Err(ReadError::Lost("it was lost".to_owned()));
            }
            self.calls += 1;
            Reader::read(&mut Numbers, bytes, at_end).map_err(ReadError::Rejected)
        }
    }

    #[tokio::test]
    async fn a_file_that_was_lost_is_read_once_more_and_its_rows_are_sent_once() {
        let bytes: Vec<u8> = (0..1000_i64).flat_map(i64::to_le_bytes).collect();
        for (times, problem) in
            [(0, None), (1, None), (2, Some("it was lost, also when the file was read again"))]
        {
            let options = format!("{{ call: 3, times: {times} }}");
            let read = unpack::<Losing>(&options, &mut file_of("a", &bytes), 1 << 10).await;
            let rows: Vec<i64> = read.rows().iter().filter_map(|row| row["number"].as_i64()).collect();
            let expected = if problem.is_some() { 3 * (1 << 10) / 8 } else { 1000 };
            assert_eq!(rows, (0..expected).collect::<Vec<i64>>(), "{times} times");
            assert_eq!(read.problem.map(|problem| problem.reason).as_deref(), problem);
        }
    }

    /// Reads rows that are far longer than the bytes that they are made of.
    struct Long;

    impl Reader for Long {
        const NAME: &'static str = "long";
        type Options = serde_json::Value;

        fn new(_: &Self::Options) -> Result<Self, String> {
            Ok(Self)
        }

        fn read(&mut self, bytes: &[u8], _: bool) -> Result<Rows, String> {
            let column: ArrayRef = Arc::new(StringArray::from_iter_values(["x".repeat(1 << 20)]));
            let rows = RecordBatch::try_from_iter([("text", column)]).map_err(|error| error.to_string())?;
            Ok(Rows { rows: Some(rows), used: bytes.len() })
        }
    }

    #[tokio::test]
    async fn rows_larger_than_the_budget_are_in_flight_one_at_a_time() {
        let budget = Budget::new(1 << 20);
        let mut file = file_of("a", &[0; 100]);
        let mut reader =
            options::<WithReader<Long>>("{}").build(&Context { batch_bytes: 10, ..context() }).unwrap();
        let (mut out, main, _) = file_output(&budget, 10, &file);
        let mut reading = pin!(reader.unpack(&mut file, &mut out));
        let mut rows = 0;
        loop {
            tokio::select! {
                biased;
                read = &mut reading => break assert!(read.is_ok()),
                Some((_, Arrived::Messages(mut batch))) = main.take() => {
                    rows += batch.rows();
                    batch.take_ack().settle(Outcome::Delivered);
                }
            }
        }
        assert_eq!(rows, 10);
        assert!(budget.peak() < 2 << 20, "{}", budget.peak());
    }

    proptest! {
        #[test]
        fn a_row_that_an_edge_cuts_is_given_whole(
            numbers in prop::collection::vec(any::<i64>(), 0..50),
            (slice, at_once) in (1..60usize, 1..4usize),
        ) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let mut file = sliced("a", &bytes, slice, at_once);
            let read = runtime.block_on(unpack::<WithReader<Numbers>>("{}", &mut file, 1 << 10));
            let read: Vec<i64> = read.rows().iter().filter_map(|row| row["number"].as_i64()).collect();
            prop_assert_eq!(read, numbers);
        }
    }
}
