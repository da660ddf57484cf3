//! How much disk space a cache occupies, and how it frees some.

use super::disk::EntryPaths;
use super::{Cache, disk};
use std::io;

/// The disk usage of the cache, as far as this process knows it.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The bytes of all entries at the last count; `None` if they must be recounted.
    total: Option<u64>,
    /// The bytes that this process has written since.
    written: u64,
}

impl Room {
    /// Discards the last count.
    pub fn forget(&mut self) {
        self.total = None;
    }
}

impl Cache {
    /// Removes the least recently used entries, except `ours`, until `bytes` more bytes fit. Returns how many
    /// bytes of `ours` must go as well.
    pub(super) fn make_room(&self, ours: &EntryPaths, bytes: u64, limit: u64) -> io::Result<u64> {
        let mut room = self.0.room.lock();
        if let Some(total) = room.total
            && (room.written + bytes).saturating_mul(4) <= limit.saturating_sub(total)
        {
            room.written += bytes;
            return Ok(0);
        }
        let mut entries: Vec<(_, u64, EntryPaths)> = disk::all(&self.0.path)?
            .into_iter()
            .map(|places| (places.used(), places.disk(), places))
            .collect();
        entries.sort_unstable();
        let mut total: u64 = entries.iter().map(|(_, disk, _)| disk).sum();
        // A write occupies whole blocks of the disk.
        let wanted = bytes + (64 << 10);
        if total + wanted > limit {
            // Frees more than is needed, so that the next piece does not have to evict again.
            let enough = limit - limit / 8;
            for (_, disk, places) in entries {
                if total + wanted <= enough {
                    break;
                }
                // An entry that is being written to right now is not the least recently used.
                if places != *ours
                    && let Some(_lock) = places.try_lock()?
                {
                    places.remove()?;
                    total = total.saturating_sub(disk);
                }
            }
        }
        room.total = Some(total);
        room.written = bytes;
        if total + wanted <= limit { Ok(0) } else { Ok(total + wanted - (limit - limit / 8)) }
    }
}
