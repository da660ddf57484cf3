//! The slices of an HEVC picture, which together cover it once (ITU-T H.265, 6.3.1 and 7.4.7.1).
//!
//! `heifer` decodes each slice from the block where it begins to the block where it says that it ends. So a
//! file of 1 MB that repeats a slice of a few bytes took half a minute. Ascending addresses are no remedy: a
//! slice may go on over the beginning of the next. Where a slice ends is known only once its blocks are
//! parsed. So pictures of several slices are parsed twice, the first time without pixels. Cameras and most
//! encoders write one slice, which is parsed once. A limit on the number of slices was rejected: those that a
//! level of H.265 allows would take hundreds of times as long as the picture.

use heifer::heifer_hevc_dec::Error;
use heifer::heifer_hevc_dec::nal::{NalUnit, split_annex_b};
use heifer::heifer_hevc_dec::params::ParameterSets;
use heifer::heifer_hevc_dec::slice::SliceHeader;
use heifer::heifer_hevc_dec::syntax::{Picture, Sink, decode_slice_segment};

/// Takes no pixels.
struct Nothing;

impl Sink for Nothing {}

/// True if each slice of the first picture of a stream begins where the one before it ended. The picture has
/// the size that its description says.
///
/// # Errors
/// If the slices cannot be parsed. The decoder then fails as well.
pub(super) fn follow_each_other(stream: &[u8]) -> Result<bool, Error> {
    let units = split_annex_b(stream).map(NalUnit::parse).collect::<Result<Vec<_>, _>>()?;
    let mut sets = ParameterSets::default();
    for unit in units.iter().take_while(|unit| !unit.header.unit_type.is_slice()) {
        sets.add(unit)?;
    }
    let slices: Vec<_> = units.iter().filter(|unit| unit.header.unit_type.is_slice()).collect();
    let begins = |unit: &NalUnit<'_>| unit.rbsp.first().is_some_and(|first| first & 0x80 != 0);
    let count = slices.iter().skip(1).take_while(|unit| !begins(unit)).count() + 1;
    let (Some(first), Some(slices)) = (slices.first(), slices.get(..count).filter(|_| count > 1)) else {
        return Ok(true);
    };
    let first = SliceHeader::parse(&first.rbsp, &first.header, &sets, None)?;
    let (pps, sps) = sets.get(first.slice_pic_parameter_set_id.into())?;
    let mut picture = Picture::new(sps, pps);
    let mut last: Option<SliceHeader> = None;
    for slice in slices {
        let header = SliceHeader::parse(&slice.rbsp, &slice.header, &sets, last.as_ref())?;
        let place = picture.layout.rs_to_ts.get(header.slice_segment_address as usize);
        if place != Some(&picture.decoded_ctbs) {
            return Ok(false);
        }
        let data = slice.rbsp.get(header.header_size..).unwrap_or_default();
        decode_slice_segment(&mut picture, &header, header.slice_qp_y(&sets)?, data, &mut Nothing)?;
        if !header.dependent_slice_segment_flag {
            last = Some(header);
        }
    }
    Ok(true)
}
