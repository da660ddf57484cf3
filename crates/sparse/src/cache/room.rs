//! How much a cache takes of the disk, and making room in it.

use super::disk::EntryPaths;
use super::{Cache, disk};
use std::io;

/// What this process knows of how much there is.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What all took when it was last counted; none if it has to be counted anew.
    total: Option<u64>,
    /// What this process has written since.
    written: u64,
}

impl Room {
    /// What was counted is no longer so.
    pub fn forget(&mut self) {
        self.total = None;
    }
}

impl Cache {
    /// Lets go of the entries that were not used for longest, other than `ours`, until `bytes` more fit; says how many
    /// bytes of ours must go as well.
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
        // What is written takes whole blocks of the disk.
        let wanted = bytes + (64 << 10);
        if total + wanted > limit {
            // More than is needed at once, so that it is not done for each piece anew.
            let enough = limit - limit / 8;
            for (_, disk, places) in entries {
                if total + wanted <= enough {
                    break;
                }
                // One that is being written to right now was not used least recently.
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
