use super::super::pixels::Pixels;
use super::super::tests::PLAIN;
use super::super::{ImageInfo, convert, heic, probe};
use super::*;
use crate::metadata::{Kept, read};

/// The side of a coded picture.
const SIDE: u16 = 64;

/// An item of a file. Its number is its place in the list, from 1.
struct Item {
    kind: &'static [u8; 4],
    size: (u16, u16),
    data: Vec<u8>,
    references: Vec<(&'static [u8; 4], Vec<u16>)>,
    is_transparency: bool,
}

impl Item {
    fn new(kind: &'static [u8; 4], size: (u16, u16), data: Vec<u8>) -> Self {
        Self { kind, size, data, references: Vec::new(), is_transparency: false }
    }

    fn coded() -> Self {
        Self::new(b"hvc1", (SIDE, SIDE), coded(SIDE).1)
    }

    /// A grid with these columns and rows of the same tile.
    fn grid(size: (u16, u16), (columns, rows): (u8, u8), tile: u16) -> Self {
        let data =
            [&[0, 0, rows - 1, columns - 1][..], &size.0.to_be_bytes(), &size.1.to_be_bytes()].concat();
        Self::new(b"grid", size, data).to(b"dimg", vec![tile; usize::from(columns) * usize::from(rows)])
    }

    /// A stack of copies of the first item.
    fn stack(size: (u16, u16), layers: usize) -> Self {
        let head = [&[0; 10][..], &size.0.to_be_bytes(), &size.1.to_be_bytes()].concat();
        let data = [head, vec![0; layers * 4]].concat();
        Self::new(b"iovl", size, data).to(b"dimg", vec![1; layers])
    }

    fn copy(of: u16) -> Self {
        Self::new(b"iden", (SIDE, SIDE), Vec::new()).to(b"dimg", vec![of])
    }

    fn to(mut self, kind: &'static [u8; 4], items: Vec<u16>) -> Self {
        self.references.push((kind, items));
        self
    }
}

/// Encodes a grey square: its configuration, and its data.
fn coded(side: u16) -> (Vec<u8>, Vec<u8>) {
    let side = u32::from(side);
    let pixels =
        Pixels { width: side, height: side, channels: 3, data: vec![90; (side * side * 3) as usize] };
    let made = heic::encode(pixels, 90, &Kept::default()).unwrap();
    let at = memchr::memmem::find(&made, b"hvcC").unwrap() - 4;
    let length = u32::from_be_bytes(*made[at..].first_chunk().unwrap()) as usize;
    let file = HeifFile::parse(&made).unwrap();
    (made[at..at + length].to_vec(), file.item_data(file.primary_id).unwrap().into_owned())
}

fn boxed(name: &[u8; 4], content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    [&(content.len() as u32 + 8).to_be_bytes()[..], name, &content].concat()
}

/// A box with a version.
fn versioned(name: &[u8; 4], version: u8, content: &[&[u8]]) -> Vec<u8> {
    boxed(name, &[&[version, 0, 0, 0], &content.concat()])
}

/// Creates a file, whose primary picture is item `primary`. All pictures have the configuration of `side`.
fn heif(items: &[Item], primary: u16, side: u16) -> Vec<u8> {
    let numbered = || (1u16..).map(u16::to_be_bytes).zip(items);
    let count = (items.len() as u16).to_be_bytes();
    let infos: Vec<u8> =
        numbered().flat_map(|(id, item)| versioned(b"infe", 2, &[&id, &[0, 0], item.kind, &[0]])).collect();
    let (mut data, mut locations) = (Vec::new(), Vec::new());
    for (id, item) in numbered() {
        let (at, length) = ((data.len() as u32).to_be_bytes(), (item.data.len() as u32).to_be_bytes());
        // In the box `idat`, in one piece.
        locations.extend([&id[..], &[0, 1, 0, 0, 0, 1], &at, &length].concat());
        data.extend_from_slice(&item.data);
    }
    let references: Vec<u8> = numbered()
        .flat_map(|(id, item)| item.references.iter().map(move |reference| (id, reference)))
        .flat_map(|(id, (kind, to))| {
            let count = (to.len() as u16).to_be_bytes();
            let to: Vec<u8> = to.iter().flat_map(|item| item.to_be_bytes()).collect();
            boxed(kind, &[&id, &count, &to])
        })
        .collect();
    let alpha = versioned(b"auxC", 0, &[b"urn:mpeg:hevc:2015:auxid:1\0"]);
    let sizes = items.iter().flat_map(|item| {
        let sides = [item.size.0, item.size.1].map(|side| u32::from(side).to_be_bytes());
        versioned(b"ispe", 0, &[&sides.concat()])
    });
    let properties = boxed(b"ipco", &[&coded(side).0, &alpha, &sizes.collect::<Vec<u8>>()]);
    let associations: Vec<u8> = numbered()
        .zip(3u8..)
        .flat_map(|((id, item), size)| {
            let alpha = if item.is_transparency { 2 } else { 0 };
            [id[0], id[1], 3, 1, alpha, size]
        })
        .collect();
    let associations = versioned(b"ipma", 0, &[&(items.len() as u32).to_be_bytes(), &associations]);
    let parts = [
        versioned(b"hdlr", 0, &[&[0; 4], b"pict", &[0; 13]]),
        versioned(b"pitm", 0, &[&primary.to_be_bytes()]),
        versioned(b"iinf", 0, &[&count, &infos]),
        versioned(b"iloc", 1, &[&[0x44, 0], &count, &locations]),
        versioned(b"iref", 0, &[&references]),
        boxed(b"iprp", &[&properties, &associations]),
        boxed(b"idat", &[&data]),
    ];
    [boxed(b"ftyp", &[b"heic", &[0; 4], b"mif1heic"]), versioned(b"meta", 0, &[&parts.concat()])].concat()
}

fn made(items: &[Item]) -> Vec<u8> {
    heif(items, items.len() as u16, SIDE)
}

fn probed(items: &[Item]) -> Result<ImageInfo, String> {
    probe(&made(items)).map_err(|error| error.to_string())
}

fn rejected(items: &[Item]) -> String {
    probed(items).unwrap_err()
}

/// Returns why a picture is rejected whose description has no defect.
fn rejected_at_last(bytes: &[u8]) -> String {
    assert!(probe(bytes).is_ok());
    convert(bytes, &PLAIN).unwrap_err().to_string()
}

#[test]
fn references_that_form_a_circle_are_rejected() {
    for kind in [b"dimg", b"auxl", b"cdsc", b"thmb"] {
        let bytes = heif(&[Item::coded().to(kind, vec![2]), Item::coded().to(kind, vec![1])], 1, SIDE);
        let name = String::from_utf8_lossy(kind);
        let expected = format!("the HEIC is damaged: its references `{name}` form a circle");
        assert_eq!(probe(&bytes).unwrap_err().to_string(), expected);
        assert_eq!(read(Format::Heic, &bytes), Kept::default());
    }
    let itself = [Item::coded(), Item::grid((SIDE, SIDE), (1, 1), 2)];
    assert_eq!(rejected(&itself), "the HEIC is damaged: its references `dimg` form a circle");
}

#[test]
fn a_circle_of_several_kinds_is_rejected() {
    let mut transparency = Item::copy(1).to(b"auxl", vec![1]);
    transparency.is_transparency = true;
    let bytes = heif(&[Item::coded(), transparency], 1, SIDE);
    assert_eq!(
        probe(&bytes).unwrap_err().to_string(),
        "HEIC: its item `1` is derived more than 2 times; flatten it with another program"
    );
}

#[test]
fn a_grid_has_as_many_tiles_as_its_size_takes() {
    let grid = |size, layout| rejected(&[Item::coded(), Item::grid(size, layout, 1)]);
    assert_eq!(
        grid((SIDE, SIDE), (255, 255)),
        "the HEIC is damaged: its grid `2` has 65025 tiles, and its size takes 1"
    );
    assert_eq!(
        grid((100, 130), (2, 2)),
        "the HEIC is damaged: its grid `2` has 4 tiles, and its size takes 6"
    );
    let empty = [Item::coded(), Item { references: Vec::new(), ..Item::grid((SIDE, SIDE), (1, 1), 1) }];
    // Without a tile, it is not known to be coded with HEVC.
    assert!(probed(&empty).unwrap().needs_program);
}

#[test]
fn a_grid_in_a_grid_is_rejected() {
    let items = [Item::coded(), Item::grid((128, 128), (2, 2), 1), Item::grid((256, 256), (2, 2), 2)];
    assert_eq!(rejected(&items), "the HEIC is damaged: its item `2` is a grid within a grid");
}

#[test]
fn a_picture_is_derived_at_most_twice() {
    let twice = [Item::coded(), Item::copy(1), Item::copy(2)];
    assert!(convert(&made(&twice), &PLAIN).is_ok());
    let thrice = [Item::coded(), Item::copy(1), Item::copy(2), Item::copy(3)];
    assert_eq!(
        rejected(&thrice),
        "HEIC: its item `1` is derived more than 2 times; flatten it with another program"
    );
}

#[test]
fn layers_are_limited_and_their_memory_is_known_before() {
    let stack = |size, layers| [Item::coded(), Item::stack(size, layers)];
    assert_eq!(
        rejected(&stack((SIDE, SIDE), 30_000)),
        "HEIC: its item `2` has 30000 layers, more than 256; flatten it with another program"
    );
    assert_eq!(
        rejected(&stack((SIDE, SIDE), 5)),
        "HEIC: its parts have 20480 pixels, more than 4 times its own; flatten it with another program"
    );
    let needed = |layers| probed(&stack((128, 128), layers)).unwrap().decoded_bytes;
    let layer = u64::from(SIDE) * u64::from(SIDE) * 8;
    // Each has an offset of four bytes in the file, and a reference of two.
    assert_eq!(needed(16) - needed(2), 14 * (layer + 2 * 6));
    assert!(convert(&made(&stack((128, 128), 16)), &PLAIN).is_ok());
}

#[test]
fn a_photograph_of_tiles_with_transparency_and_a_thumbnail_is_read() {
    let mut transparency = Item::grid((150, 100), (3, 2), 1).to(b"auxl", vec![5]);
    transparency.is_transparency = true;
    let items = [
        Item::coded(),
        Item::coded().to(b"thmb", vec![5]),
        transparency,
        Item::new(b"Exif", (1, 1), b"\0\0\0\0II*\0\x08\0\0\0\0\0".to_vec()).to(b"cdsc", vec![5]),
        Item::grid((150, 100), (3, 2), 1),
    ];
    let bytes = made(&items);
    let info = probe(&bytes).unwrap();
    assert_eq!((info.width, info.height, info.has_alpha), (150, 100, true));
    assert!(read(Format::Heic, &bytes).exif.is_some());
    convert(&bytes, &PLAIN).unwrap();
}

#[test]
fn what_is_larger_than_its_description_is_rejected() {
    let differs =
        |item| format!("the HEIC is damaged: the size of its item `{item}` differs from its description");
    // A larger coded picture.
    let large = Item { data: coded(256).1, ..Item::coded() };
    assert_eq!(rejected_at_last(&heif(&[large], 1, 256)), differs(1));
    // A larger grid, and one with its rows as columns.
    let grids = [((4000, 100), (2, 2)), ((100, 200), (4, 2))];
    for ((size, layout), described) in grids.into_iter().zip([(100, 100), (100, 200)]) {
        let grid = Item { size: described, ..Item::grid(size, layout, 1) };
        assert_eq!(rejected_at_last(&made(&[Item::coded(), grid])), differs(2));
    }
    // A larger stack of layers.
    let stack = Item { size: (SIDE, SIDE), ..Item::stack((4000, 4000), 2) };
    assert_eq!(rejected_at_last(&made(&[Item::coded(), stack])), differs(2));
}

/// Returns the slice of an encoded picture as one that begins at a block. Addresses have `bits` bits.
fn slice_at(coded: &[u8], address: u8, bits: usize) -> Vec<u8> {
    let unit = NalUnit::parse(&coded[4..]).unwrap();
    // The header of the encoder ends with a one, and zeros up to the second byte: the flag of a first slice,
    // another flag, the number of the parameter set, and what follows the address.
    let (header, data) = unit.rbsp.split_first_chunk().unwrap();
    let header = format!("{:016b}", u16::from_be_bytes(*header));
    let header = header.trim_end_matches('0');
    let header = format!("0{}{address:0bits$b}{}", &header[1..3], &header[3..]);
    let padded = format!("{header:0<width$}", width = header.len().next_multiple_of(8));
    let header = (0..padded.len()).step_by(8).map(|at| u8::from_str_radix(&padded[at..at + 8], 2).unwrap());
    let (mut slice, mut zeros) = (coded[4..6].to_vec(), 0);
    for byte in header.chain(data.iter().copied()) {
        // Three bytes that mark the beginning of a unit are not in it.
        if zeros == 2 && byte < 4 {
            slice.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        slice.push(byte);
    }
    [&(slice.len() as u32).to_be_bytes(), &slice[..]].concat()
}

/// A picture of 128 pixels, which has four blocks, and its slices.
fn sliced(slices: &[Vec<u8>]) -> Vec<u8> {
    heif(&[Item::new(b"hvc1", (2 * SIDE, 2 * SIDE), slices.concat())], 1, 2 * SIDE)
}

#[test]
fn slices_follow_each_other() {
    let (block, whole) = (coded(SIDE).1, coded(2 * SIDE).1);
    let blocks = |addresses: &[u8]| -> Vec<Vec<u8>> {
        let rest = addresses.iter().map(|address| slice_at(&block, *address, 2));
        std::iter::once(block.clone()).chain(rest).collect()
    };
    assert_eq!(
        convert(&sliced(&blocks(&[1, 2, 3])), &PLAIN).unwrap(),
        convert(&sliced(std::slice::from_ref(&whole)), &PLAIN).unwrap()
    );
    let differs = "the HEIC is damaged: the slices of its item `1` do not follow each other";
    for addresses in [&[1, 2, 2, 3][..], &[1, 1, 1, 1], &[2, 3], &[1, 3, 2]] {
        assert_eq!(rejected_at_last(&sliced(&blocks(addresses))), differs, "{addresses:?}");
    }
    // The first one has all blocks already.
    for address in 0..4 {
        let twice = [whole.clone(), slice_at(&whole, address, 2)];
        assert_eq!(rejected_at_last(&sliced(&twice)), differs, "{address}");
    }
    // The next picture is not decoded.
    assert!(convert(&sliced(&[whole.clone(), whole]), &PLAIN).is_ok());
}

#[test]
fn the_slices_of_a_transparency_follow_each_other_whatever_its_kind() {
    let (size, whole) = ((2 * SIDE, 2 * SIDE), coded(2 * SIDE).1);
    for kind in [b"hvc1", b"hev1"] {
        let twice = [whole.clone(), slice_at(&whole, 0, 2)].concat();
        let mut transparency = Item::new(kind, size, twice).to(b"auxl", vec![2]);
        transparency.is_transparency = true;
        let bytes = heif(&[transparency, Item::new(b"hvc1", size, whole.clone())], 2, 2 * SIDE);
        assert_eq!(
            rejected_at_last(&bytes),
            "the HEIC is damaged: the slices of its item `1` do not follow each other"
        );
    }
}

#[test]
fn a_second_description_is_rejected() {
    let bytes = made(&[Item::coded()]);
    let twice = [&bytes[..], &bytes[24..]].concat();
    assert_eq!(rejected_at_last(&twice), "the HEIC is damaged: invalid file: it has several descriptions");
    assert_eq!(read(Format::Heic, &twice), Kept::default());
}
