//! Converts a picture after reserving memory for its pixels.
//!
//! All memory is reserved at once, before the picture is read. Reserving it in parts could deadlock: several
//! tasks would each hold a part and wait for the rest.
//!
//! The picture's header says how much memory is needed. If the header is not among the first bytes (a
//! camera's metadata may come before it), the file is read twice.

use std::io::Read;

use thalweg_config::ByteSize;
use thalweg_engine::{Context, FileError};
use thalweg_media::image::{self, Conversion, ImageInfo};
use thalweg_record::Lease;

use super::failed;
use crate::content::{Opened, unreadable};

/// The first bytes to read, in bytes: the header of most pictures is among them.
pub const HEAD: usize = 64 << 10;

/// A file whose header announces a larger size in this many reads is being changed.
const ATTEMPTS: u32 = 4;

/// Returns the converted picture and the lease for its memory.
pub async fn convert(
    open: impl Fn() -> Result<Opened, FileError>,
    conversion: &Conversion,
    context: &Context,
) -> Result<(Vec<u8>, Lease), FileError> {
    let head = open()?.head(HEAD).map_err(|error| unreadable(&error))?;
    let mut known = image::probe(&head).ok();
    drop(head);
    for _ in 0..ATTEMPTS {
        let size = open()?.size().map_err(|error| unreadable(&error))?;
        let pixels = known.map_or(0, |info| image::memory_needed(&info, conversion));
        let lease = reserve(pixels.saturating_add(size), known, context).await?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        open()?.take(size).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
        let info = image::probe(&bytes).map_err(failed)?;
        if image::memory_needed(&info, conversion) <= pixels {
            let made = image::convert(&bytes, conversion).map_err(failed)?;
            return Ok((made, lease));
        }
        known = Some(info);
    }
    Err(failed("the file is being changed while it is read"))
}

/// Waits until the budget has the capacity. Fails at once if the whole budget is too small.
async fn reserve(needed: u64, info: Option<ImageInfo>, context: &Context) -> Result<Lease, FileError> {
    let budget = context.memory.budget().limit();
    match usize::try_from(needed) {
        Ok(needed) if needed <= budget => Ok(context.memory.reserve(needed).await),
        _ => {
            let what = match info {
                Some(info) => format!("the picture has {} × {} pixels", info.width, info.height),
                None => "the file is too large".to_owned(),
            };
            let (needed, budget) = (rounded(needed), rounded(budget as u64));
            Err(failed(format!(
                "{what}: converting it needs {needed} of memory, but the budget is {budget}; raise it with `--memory`"
            )))
        }
    }
}

/// Rounds a size up for people to read.
fn rounded(bytes: u64) -> ByteSize {
    match bytes {
        0..0x10_0000 => ByteSize::kib(bytes.div_ceil(1 << 10)),
        0x10_0000..0x2_8000_0000 => ByteSize::mib(bytes.div_ceil(1 << 20)),
        _ => ByteSize::gib(bytes.div_ceil(1 << 30)),
    }
}
