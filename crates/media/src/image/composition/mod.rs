//! How a HEIF picture is composed of others, and the limits of that.
//!
//! A picture may be a grid of tiles, a stack of layers or a copy of another, and each of those may again be
//! one. `heifer` decodes whatever is referenced, as often as it is referenced, and follows references in a
//! circle. So a file of 3 KB could take hours and all memory. References are therefore checked before the
//! library is called: time and memory depend on the size of the picture, which the caller knows. A time limit
//! was rejected, since a thread that decodes cannot be stopped.

use std::collections::{BTreeMap, BTreeSet};

use heifer::heifer_hevc_dec::nal::{NalUnit, NalUnitType, split_annex_b};
use heifer::heifer_hevc_dec::params::Sps;
use heifer::heifer_isobmff::boxes::Property;
use heifer::heifer_isobmff::{HeifFile, ItemId};

use super::{Format, ImageError};

mod slices;
#[cfg(test)]
mod tests;

/// How often a picture may be derived from another: a layer may be a grid of coded pictures.
const DEEPEST: u32 = 2;

/// The longest chain of references of one kind in a file. Only a circle is longer.
const LONGEST_CHAIN: usize = 4;

/// The kinds of references that lead from one picture to another: derived from, auxiliary to, description of,
/// thumbnail of.
const KINDS: [[u8; 4]; 4] = [*b"dimg", *b"auxl", *b"cdsc", *b"thmb"];

/// The most layers of a picture.
const MOST_LAYERS: usize = 256;

/// How many times its own pixels a picture may decode: for transparency, and for a few layers.
const MOST_TIMES: u64 = 4;

/// The side of the largest block of HEVC. A smaller picture takes as long as a block.
const BLOCK: u32 = 64;

/// Returns the pixels of a coded picture of this size, with the blocks that HEVC pads it to.
pub(super) fn padded((width, height): (u32, u32)) -> u64 {
    (u64::from(width) + u64::from(BLOCK)).saturating_mul(u64::from(height) + u64::from(BLOCK))
}

/// Returns the pictures that contain the transparency of a picture.
pub(super) fn transparencies(file: &HeifFile<'_>, id: ItemId) -> Vec<ItemId> {
    let mut found = file.referencing_items(id, b"auxl");
    found.retain(|item| {
        file.item_properties(*item).is_ok_and(|mut properties| {
            properties.any(|property| {
                matches!(property, Property::AuxiliaryType(kind) if kind.ends_with(":auxid:1") || kind.ends_with(":auxiliary:alpha"))
            })
        })
    });
    found
}

/// The purpose of a picture that another one uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// The primary picture, a layer of it, or its original.
    Picture,
    /// A part of a grid. It must not be a grid.
    Tile,
    /// The transparency of another picture. It must not have one.
    Transparency,
}

/// The cost of decoding a picture, in pixels.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// All pixels that are decoded.
    decoded: u64,
    /// The pixels of layers that are held at once.
    layered: u64,
}

impl Cost {
    fn plus(self, other: Self) -> Self {
        Self {
            decoded: self.decoded.saturating_add(other.decoded),
            layered: self.layered.saturating_add(other.layered),
        }
    }
}

/// How the primary picture of a file is composed.
pub(super) struct Composition<'f, 'a> {
    file: &'f HeifFile<'a>,
    format: Format,
    /// The pictures it consists of, and what each takes. The same one counts again at another depth.
    known: BTreeMap<(ItemId, u32, Role), Cost>,
    /// The sides of the largest coded picture.
    largest: (u32, u32),
    /// The pixels of layers that are held at once.
    pub layered: u64,
}

impl<'f, 'a> Composition<'f, 'a> {
    /// Checks what the primary picture consists of. Only the description of the file is read.
    ///
    /// # Errors
    /// If its parts contradict the format, or exceed the limits.
    pub(super) fn of(file: &'f HeifFile<'a>, format: Format) -> Result<Self, ImageError> {
        let mut composition =
            Self { file, format, known: BTreeMap::new(), largest: (BLOCK, BLOCK), layered: 0 };
        let cost = composition.cost(file.primary_id, 0, Role::Picture)?;
        let (width, height) = composition.size(file.primary_id)?;
        // Tiles exceed the right and the lower edge.
        let (across, down) = composition.largest;
        let whole = |side: u32, tile: u32| u64::from(side).next_multiple_of(tile.into());
        let most = whole(width, across).saturating_mul(whole(height, down)).saturating_mul(MOST_TIMES);
        if cost.decoded > most {
            return Err(composition.unsupported(format!(
                "its parts have {} pixels, more than {MOST_TIMES} times its own; flatten it with another program",
                cost.decoded
            )));
        }
        composition.layered = cost.layered;
        Ok(composition)
    }

    fn damaged(&self, why: String) -> ImageError {
        ImageError::Damaged { format: self.format, why }
    }

    fn unsupported(&self, why: String) -> ImageError {
        ImageError::Unsupported { format: self.format, why }
    }

    fn size(&self, id: ItemId) -> Result<(u32, u32), ImageError> {
        let size = self.file.image_size(id).map_err(|error| self.damaged(error.to_string()))?;
        size.filter(|(width, height)| *width > 0 && *height > 0)
            .ok_or_else(|| self.damaged(format!("its item `{id}` has no size")))
    }

    fn cost(&mut self, id: ItemId, depth: u32, role: Role) -> Result<Cost, ImageError> {
        if let Some(cost) = self.known.get(&(id, depth, role)) {
            return Ok(*cost);
        }
        if depth > DEEPEST {
            let why = format!(
                "its item `{id}` is derived more than {DEEPEST} times; flatten it with another program"
            );
            return Err(self.unsupported(why));
        }
        let file = self.file;
        let kind = file.item(id).map_err(|error| self.damaged(error.to_string()))?.item_type.0;
        let parts = file.referenced_items(id, b"dimg");
        let mut cost = match &kind {
            b"grid" if role == Role::Tile => {
                return Err(self.damaged(format!("its item `{id}` is a grid within a grid")));
            }
            b"grid" => self.grid(id, parts, depth)?,
            b"iovl" => self.layers(id, parts, depth)?,
            b"iden" => self.sum(parts, depth, Role::Picture)?,
            _ => self.coded(id)?,
        };
        for transparency in transparencies(file, id) {
            if role == Role::Transparency {
                return Err(self.damaged(format!("the transparency `{id}` has a transparency itself")));
            }
            cost = cost.plus(self.cost(transparency, depth, Role::Transparency)?);
        }
        self.known.insert((id, depth, role), cost);
        Ok(cost)
    }

    fn sum(&mut self, parts: &[ItemId], depth: u32, role: Role) -> Result<Cost, ImageError> {
        parts.iter().try_fold(Cost::default(), |sum, part| Ok(sum.plus(self.cost(*part, depth + 1, role)?)))
    }

    fn coded(&mut self, id: ItemId) -> Result<Cost, ImageError> {
        let (width, height) = self.size(id)?;
        self.largest = (self.largest.0.max(width), self.largest.1.max(height));
        let decoded = u64::from(width.max(BLOCK)).saturating_mul(height.max(BLOCK).into());
        Ok(Cost { decoded, layered: 0 })
    }

    fn grid(&mut self, id: ItemId, tiles: &[ItemId], depth: u32) -> Result<Cost, ImageError> {
        let (columns, rows) = self.columns_and_rows(id)?;
        let needed = u64::from(columns) * u64::from(rows);
        if tiles.len() as u64 != needed {
            let has = tiles.len();
            return Err(self.damaged(format!("its grid `{id}` has {has} tiles, and its size takes {needed}")));
        }
        self.sum(tiles, depth, Role::Tile)
    }

    /// Returns how many tiles of the size of its first one a grid takes.
    fn columns_and_rows(&self, id: ItemId) -> Result<(u32, u32), ImageError> {
        let first = self.file.referenced_items(id, b"dimg").first();
        let first = first.ok_or_else(|| self.damaged(format!("its grid `{id}` has no tiles")))?;
        let ((width, height), tile) = (self.size(id)?, self.size(*first)?);
        Ok((width.div_ceil(tile.0), height.div_ceil(tile.1)))
    }

    fn layers(&mut self, id: ItemId, layers: &[ItemId], depth: u32) -> Result<Cost, ImageError> {
        let count = layers.len();
        if count > MOST_LAYERS {
            return Err(self.unsupported(format!(
                "its item `{id}` has {count} layers, more than {MOST_LAYERS}; flatten it with another program"
            )));
        }
        let mut cost = self.sum(layers, depth, Role::Picture)?;
        for layer in layers {
            let (width, height) = self.size(*layer)?;
            cost.layered = cost.layered.saturating_add(u64::from(width).saturating_mul(height.into()));
        }
        Ok(cost)
    }

    /// Checks the pictures themselves: none is larger than the file's description says, and none has parts
    /// that are coded twice.
    ///
    /// # Errors
    /// If one is or has, or a grid does not have the rows and columns of its size.
    pub(super) fn check_pictures(&self) -> Result<(), ImageError> {
        let items: BTreeSet<(ItemId, Role)> = self.known.keys().map(|(id, _, role)| (*id, *role)).collect();
        items.into_iter().try_for_each(|(id, role)| self.check_picture(id, role))
    }

    fn check_picture(&self, id: ItemId, role: Role) -> Result<(), ImageError> {
        let broken = |error: heifer::heifer_isobmff::Error| self.damaged(error.to_string());
        let size = self.size(id)?;
        let kind = &self.file.item(id).map_err(broken)?.item_type.0;
        let is_right = match kind {
            b"grid" => {
                let grid = self.file.grid(id).map_err(broken)?;
                let (columns, rows) = self.columns_and_rows(id)?;
                (grid.output_width, grid.output_height) == size
                    && (u32::from(grid.columns), u32::from(grid.rows)) == (columns, rows)
            }
            b"iovl" => canvas(&self.file.item_data(id).map_err(broken)?) == Some(size),
            _ => true,
        };
        // The library decodes a transparency whatever its kind says.
        let stream = match self.file.hevc_bitstream(id) {
            Ok(stream) if kind == b"hvc1" || role == Role::Transparency => Some(stream),
            Err(error) if kind == b"hvc1" => return Err(broken(error)),
            _ => None,
        };
        if !is_right || stream.as_ref().is_some_and(|stream| largest_coded(stream) > padded(size)) {
            return Err(self.damaged(format!("the size of its item `{id}` differs from its description")));
        }
        if stream.is_some_and(|stream| !slices::follow_each_other(&stream).unwrap_or(true)) {
            return Err(self.damaged(format!("the slices of its item `{id}` do not follow each other")));
        }
        Ok(())
    }
}

/// Checks that references of no kind form a circle, which the library would follow for ever.
///
/// # Errors
/// If they do.
pub(super) fn check_references(file: &HeifFile<'_>, format: Format) -> Result<(), ImageError> {
    let circular = KINDS.iter().find(|kind| is_circular(file, kind));
    circular.map_or(Ok(()), |kind| {
        let why = format!("its references `{}` form a circle", String::from_utf8_lossy(kind));
        Err(ImageError::Damaged { format, why })
    })
}

/// True if references of one kind lead back to where they begin, or chains of them are longer than any
/// picture needs. Lengths grow by one a round, so no recursion is needed, and a circle exceeds the limit.
fn is_circular(file: &HeifFile<'_>, kind: &[u8; 4]) -> bool {
    let links = file.references.iter().filter(|reference| reference.ref_type.0 == *kind);
    let mut links: Vec<_> = links.map(|link| (link.from, link.to.as_slice(), 1)).collect();
    // Of several lists of an item, readers take the first.
    links.sort_by_key(|(from, _, _)| *from);
    links.dedup_by_key(|(from, _, _)| *from);
    for _ in 0..LONGEST_CHAIN {
        let length = |item: &ItemId| {
            links.binary_search_by_key(item, |(from, _, _)| *from).map_or(0, |found| links[found].2)
        };
        let lengths: Vec<usize> =
            links.iter().map(|(_, to, _)| 1 + to.iter().map(length).max().unwrap_or(0)).collect();
        links.iter_mut().zip(lengths).for_each(|(link, length)| link.2 = length);
    }
    links.iter().any(|(_, _, length)| *length > LONGEST_CHAIN)
}

/// Returns the size of a stack of layers, which is in its data: version, flags and the colour of the
/// background come first.
fn canvas(data: &[u8]) -> Option<(u32, u32)> {
    let sides = data.get(10..)?;
    if data.get(1)? & 1 == 1 {
        let (width, rest) = sides.split_first_chunk()?;
        Some((u32::from_be_bytes(*width), u32::from_be_bytes(*rest.first_chunk()?)))
    } else {
        let (width, rest) = sides.split_first_chunk()?;
        Some((u16::from_be_bytes(*width).into(), u16::from_be_bytes(*rest.first_chunk()?).into()))
    }
}

/// Returns the pixels of the largest picture that a stream of HEVC declares. The decoder rejects declarations
/// that cannot be read.
fn largest_coded(stream: &[u8]) -> u64 {
    let is_set = |unit: &&[u8]| {
        unit.first().is_some_and(|first| NalUnitType::from_raw(first >> 1 & 0x3f) == NalUnitType::Sps)
    };
    let sets = split_annex_b(stream).filter(is_set).filter_map(|unit| {
        let unit = NalUnit::parse(unit).ok()?;
        Sps::parse(&unit.rbsp).ok()
    });
    let pixels =
        |set: Sps| u64::from(set.pic_width_in_luma_samples) * u64::from(set.pic_height_in_luma_samples);
    sets.map(pixels).max().unwrap_or(0)
}
