//! Rotates a picture according to its orientation.

use super::pixels::Pixels;

/// The side of a block. Rows that become columns are read in blocks, so that the output stays in the cache.
const BLOCK: usize = 32;

/// Returns the picture rotated according to its EXIF orientation.
pub(super) fn apply(pixels: Pixels, orientation: u8) -> Pixels {
    if !(2..=8).contains(&orientation) {
        return pixels;
    }
    match pixels.channels {
        1 => turn::<1>(pixels, orientation),
        2 => turn::<2>(pixels, orientation),
        3 => turn::<3>(pixels, orientation),
        _ => turn::<4>(pixels, orientation),
    }
}

/// True if width and height are swapped.
pub(super) fn swaps(orientation: u8) -> bool {
    orientation >= 5
}

fn turn<const N: usize>(pixels: Pixels, orientation: u8) -> Pixels {
    let (width, height) = (pixels.width as usize, pixels.height as usize);
    let from = pixels.data.as_chunks::<N>().0;
    let mut data = vec![0; pixels.data.len()];
    let to = data.as_chunks_mut::<N>().0;
    let (out_width, out_height) = if swaps(orientation) { (height, width) } else { (width, height) };
    // The source position of a pixel of the result.
    let source = |x: usize, y: usize| match orientation {
        2 => (width - 1 - x, y),
        3 => (width - 1 - x, height - 1 - y),
        4 => (x, height - 1 - y),
        5 => (y, x),
        6 => (y, height - 1 - x),
        7 => (width - 1 - y, height - 1 - x),
        _ => (width - 1 - y, x),
    };
    for top in (0..out_height).step_by(BLOCK) {
        for left in (0..out_width).step_by(BLOCK) {
            for y in top..(top + BLOCK).min(out_height) {
                for x in left..(left + BLOCK).min(out_width) {
                    let (from_x, from_y) = source(x, y);
                    to[y * out_width + x] = from[from_y * width + from_x];
                }
            }
        }
    }
    Pixels { width: out_width as u32, height: out_height as u32, data, ..pixels }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `ab` over `cd` over `ef`, rotated.
    fn turned(orientation: u8) -> (u32, String) {
        let pixels = Pixels { width: 2, height: 3, channels: 1, data: b"abcdef".to_vec() };
        let turned = apply(pixels, orientation);
        (turned.width, String::from_utf8(turned.data).unwrap())
    }

    #[test]
    fn each_orientation_is_undone() {
        assert_eq!(turned(1), (2, "abcdef".to_owned()));
        assert_eq!(turned(2), (2, "badcfe".to_owned()));
        assert_eq!(turned(3), (2, "fedcba".to_owned()));
        assert_eq!(turned(4), (2, "efcdab".to_owned()));
        assert_eq!(turned(5), (3, "acebdf".to_owned()));
        assert_eq!(turned(6), (3, "ecafdb".to_owned()));
        assert_eq!(turned(7), (3, "fdbeca".to_owned()));
        assert_eq!(turned(8), (3, "bdface".to_owned()));
    }
}
