//! Pictures: the header says how much memory a conversion takes, and it takes no more.

use thalweg_media::image::{Conversion, Fit, Format, Resize, convert, memory_needed, probe};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "image",
    components: &["convert_image"],
    longest: 8 << 10,
    words: &["IHDR", "IDAT", "PLTE", "tRNS", "VP8 ", "VP8L", "VP8X", "ALPH", "GIF89a", "II*\0", "MM\0*"],
    run,
};

/// The memory beyond which a picture is not converted here: it would only be slow.
const MOST: u64 = 48 << 20;

/// The longest partition of a WebP: its length has 24 bits. The decoder allocates it as zeros, which take no
/// memory until they are written, before it finds that the file is shorter.
const PARTITION: usize = 16 << 20;

/// The most memory that reading a description takes. The parser of HEIC allocates lists by their declared
/// lengths, which have 16 bits, before it finds that the file is shorter.
const DESCRIPTION: usize = 4 << 20;

const WRITTEN: [Format; 4] = [Format::Jpeg, Format::Png, Format::Gif, Format::Tiff];

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let to = WRITTEN[input.choice(WRITTEN.len())];
    let resized = input.choice(4);
    let Ok(info) = bounded(DESCRIPTION, || probe(input.0)) else { return };
    let fit = [Fit::Inside, Fit::Cover, Fit::Fill][resized % 3];
    let size = Resize { width: Some(20), height: Some(30), fit, enlarge: resized == 1 };
    let conversion = Conversion {
        to,
        quality: 80,
        effort: Some(0),
        size: (resized > 0).then_some(size),
        rotate: true,
        strip: resized == 2,
        is_upright: resized == 3,
    };
    let needed = memory_needed(&info, &conversion);
    if needed > MOST {
        return;
    }
    let unread = if info.format == Format::Webp { PARTITION } else { 0 };
    // The metadata of the input is kept beside the picture.
    let most = needed as usize + unread + 4 * bytes.len();
    if let Ok(made) = bounded(most, || convert(input.0, &conversion)) {
        let after = probe(&made).expect("the picture that was written can be read");
        assert_eq!(after.format, to);
    }
}
