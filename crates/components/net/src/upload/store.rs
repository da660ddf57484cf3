//! Stores a file while it arrives.

use std::fs;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use thalweg_config::ByteSize;
use thalweg_engine::Error;
use thalweg_record::{Content, Temporary};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::{Refusal, Room, SMALL, too_large};

/// A file that is arriving.
pub(super) struct Storing<'s> {
    room: &'s Room,
    most: ByteSize,
    /// Data that is not written yet.
    buffer: &'s mut Vec<u8>,
    written: Option<(fs::File, Arc<Temporary>)>,
    size: u64,
}

impl<'s> Storing<'s> {
    pub(super) fn new(room: &'s Room, most: ByteSize, buffer: &'s mut Vec<u8>) -> Self {
        buffer.clear();
        Self { room, most, buffer, written: None, size: 0 }
    }

    pub(super) async fn add(&mut self, mut data: &[u8]) -> Result<(), Refusal> {
        self.size += data.len() as u64;
        if self.size > self.most.bytes() {
            return Err(too_large("a file", self.most).by("max_file_bytes"));
        }
        while !data.is_empty() {
            if self.buffer.len() == SMALL {
                self.write().await?;
            }
            let (now, later) = data.split_at(data.len().min(SMALL - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            data = later;
        }
        Ok(())
    }

    /// Returns the stored content and its size in bytes.
    pub(super) async fn finish(mut self) -> Result<(Content, u64), Refusal> {
        if self.written.is_none() && self.room.in_memory {
            // A request that holds files must not wait for capacity: another waiting request might hold it.
            let room = timeout(Duration::ZERO, self.room.share.reserve(self.buffer.len()));
            if let Ok(lease) = room.await {
                return Ok((Content::Memory(lease.freeze(self.buffer.as_slice().to_vec())), self.size));
            }
        }
        self.write().await?;
        match self.written {
            Some((_, temporary)) => Ok((Content::Temporary(temporary), self.size)),
            None => Err(failed(&io::Error::other("no temporary file was made"))),
        }
    }

    async fn write(&mut self) -> Result<(), Refusal> {
        let (written, buffer) = (self.written.take(), std::mem::take(self.buffer));
        let temporary = self.room.temporary.clone();
        let write = spawn_blocking(move || {
            let (mut file, path) = match written {
                Some(written) => written,
                None => temporary.create("")?,
            };
            file.write_all(&buffer)?;
            Ok((file, path, buffer))
        });
        let (file, path, mut buffer) = write
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| failed(&error))?;
        buffer.clear();
        *self.buffer = buffer;
        self.written = Some((file, path));
        Ok(())
    }
}

fn failed(error: &io::Error) -> Refusal {
    Refusal::Failed(Error::temporary(format!("a temporary file cannot be written: {error}")))
}
