//! The content of a file while it is written.
//!
//! A small content stays in memory, under a lease. A transform cannot wait for the budget, so its memory is
//! claimed, not reserved. Claims must be small, so a larger content moves to a temporary file.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use thalweg_engine::Temporaries;
use thalweg_record::{Budget, Content, Lease, Temporary};

use thalweg_codec::compress::Encoder;

/// The maximum size of a content in memory, in bytes.
pub(super) const IN_MEMORY: usize = 1 << 20;

/// How many bytes of a file are read at a time.
const PIECE: usize = 256 << 10;

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

    /// Ends the member of a compressed content, so that the bytes so far are whole, and begins another with
    /// `encoder`.
    pub(super) fn end_member(&mut self, encoder: Option<Encoder>) -> io::Result<()> {
        if let Some(encoder) = std::mem::replace(&mut self.encoder, encoder) {
            encoder.end(&mut self.packed)?;
            self.storage.add(&self.packed)?;
            self.packed.clear();
        }
        Ok(())
    }

    /// Adds bytes of a content that another run began. They are compressed already.
    pub(super) fn add_stored(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.storage.add(bytes)
    }

    /// Passes the stored bytes after the first `from` ones to `take`, a piece at a time.
    pub(super) fn read_after<E: From<io::Error>>(
        &self,
        from: u64,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some((file, _, size)) = &self.storage.file else {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            return take(self.storage.bytes.get(from..).unwrap_or_default());
        };
        let (mut at, mut piece) = (from, vec![0; PIECE]);
        while at < *size {
            let length = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
            let piece = piece.get_mut(..length).unwrap_or_default();
            file.read_exact_at(piece, at)?;
            take(piece)?;
            at += length as u64;
        }
        Ok(())
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
