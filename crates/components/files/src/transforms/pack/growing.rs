//! The content of a file while it is written.
//!
//! A small content stays in memory, under a lease. A transform cannot wait for the budget, so its memory is
//! claimed, not reserved. Claims must be small, so a larger content moves to a temporary file.

use std::fs;
use std::io::{self, Write};
use std::sync::Arc;

use thalweg_engine::Temporaries;
use thalweg_record::{Budget, Content, Lease, Temporary};

use thalweg_codec::compress::Encoder;

/// The maximum size of a content in memory, in bytes.
pub(super) const IN_MEMORY: usize = 1 << 20;

/// A content that grows.
pub(super) struct Growing {
    storage: Storage,
    encoder: Option<Encoder>,
    /// The last bytes that the encoder returned.
    packed: Vec<u8>,
}

/// The storage of a content: memory, or a temporary file.
struct Storage {
    budget: Budget,
    temporaries: Temporaries,
    bytes: Vec<u8>,
    lease: Lease,
    /// The file, once the content is too large for memory, and its size in bytes.
    file: Option<(fs::File, Arc<Temporary>, u64)>,
}

impl Growing {
    /// Creates an empty content, which is compressed if there is an encoder.
    pub(super) fn new(budget: &Budget, temporaries: &Temporaries, encoder: Option<Encoder>) -> Self {
        let storage = Storage {
            budget: budget.clone(),
            temporaries: temporaries.clone(),
            bytes: Vec::new(),
            lease: budget.claim(0),
            file: None,
        };
        Self { storage, encoder, packed: Vec::new() }
    }

    /// Returns the content and its size in bytes.
    pub(super) fn finish(mut self) -> io::Result<(Content, u64)> {
        if let Some(encoder) = self.encoder.take() {
            encoder.end(&mut self.packed)?;
            self.storage.add(&self.packed)?;
        }
        let Storage { mut bytes, lease, file, .. } = self.storage;
        if let Some((_, temporary, size)) = file {
            return Ok((Content::Temporary(temporary), size));
        }
        bytes.shrink_to_fit();
        let size = bytes.len() as u64;
        Ok((Content::Memory(lease.freeze(bytes)), size))
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.encoder {
            Some(encoder) => {
                encoder.write_all(bytes)?;
                encoder.take(&mut self.packed);
                self.storage.add(&self.packed)?;
                self.packed.clear();
            }
            None => self.storage.add(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Storage {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.bytes.len() + bytes.len() > IN_MEMORY {
            let (mut file, temporary) = self.temporaries.create("")?;
            file.write_all(&self.bytes)?;
            self.file = Some((file, temporary, self.bytes.len() as u64));
            self.bytes = Vec::new();
            self.lease = self.budget.claim(0);
        }
        if let Some((file, _, size)) = &mut self.file {
            file.write_all(bytes)?;
            *size += bytes.len() as u64;
            return Ok(());
        }
        self.bytes.extend_from_slice(bytes);
        let more = self.bytes.capacity().saturating_sub(self.lease.bytes());
        if more > 0 {
            // Both leases are of this budget and of no share, so they can merge.
            let _ = self.lease.merge(self.budget.claim(more));
        }
        Ok(())
    }
}
