//! Compares the memory of conversions with `memory_needed`: `cargo run --release -p thalweg-media --example
//! peak_memory`.
//!
//! Linux reports the peak of the process, which includes libwebp's memory; a Rust allocator would not see
//! that. The pictures are noise, the worst case for every encoder.

use thalweg_media::image::{Conversion, Fit, Format, Resize, convert, memory_needed, probe};

const FORMATS: [Format; 5] = [Format::Jpeg, Format::Png, Format::Gif, Format::Webp, Format::Tiff];

fn main() {
    let (width, height) = (4000, 3000);
    for color in [png::ColorType::Grayscale, png::ColorType::Rgb, png::ColorType::Rgba] {
        let original = noise(width, height, color);
        for from in FORMATS {
            let plain = Conversion {
                to: from,
                quality: 100,
                effort: Some(0),
                size: None,
                rotate: true,
                strip: false,
                is_upright: false,
            };
            let bytes = convert(&original, &plain).expect("noise is a picture");
            for to in FORMATS {
                show(&bytes, &Conversion { to, ..plain });
            }
            for effort in [2, 3, 4, 6] {
                show(&bytes, &Conversion { to: Format::Webp, effort: Some(effort), ..plain });
            }
            let size = Some(Resize { width: Some(3000), height: None, fit: Fit::Inside, enlarge: false });
            show(&bytes, &Conversion { to: Format::Jpeg, size, ..plain });
            if from == Format::Jpeg {
                let progressive =
                    convert(&original, &Conversion { effort: Some(6), ..plain }).expect("it is a picture");
                show(&progressive, &Conversion { to: Format::Jpeg, ..plain });
                show(&progressive, &Conversion { to: Format::Jpeg, effort: Some(6), ..plain });
                show(&progressive, &Conversion { to: Format::Webp, effort: Some(6), ..plain });
            }
        }
    }
}

fn show(bytes: &[u8], conversion: &Conversion) {
    let info = probe(bytes).expect("it was made here");
    let estimated = memory_needed(&info, conversion) >> 20;
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = status("VmRSS:");
    let made = convert(bytes, conversion).map(|made| made.len());
    let took = status("VmHWM:").saturating_sub(before) >> 10;
    let size = if conversion.size.is_some() { " smaller" } else { "" };
    let wrong = if took > estimated { "  <-- more" } else { "" };
    println!(
        "{} of {} channels to {}{size}: {took} MiB of {estimated}, {:.1} of the pixels{wrong} {}",
        info.format,
        info.channels,
        conversion.to,
        (took << 20) as f64 / (f64::from(info.width) * f64::from(info.height) * f64::from(info.channels)),
        made.map_or_else(|error| error.to_string(), |length| format!("{} MiB", length >> 20)),
    );
}

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}

fn noise(width: u32, height: u32, color: png::ColorType) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    let pixels: Vec<u8> =
        (0..width as usize * height as usize * color.samples()).map(|_| random.u8(..)).collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_compression(png::Compression::Fastest);
    let mut writer = encoder.write_header().expect("the header is written to memory");
    writer.write_image_data(&pixels).expect("the pixels are written to memory");
    writer.finish().expect("the end is written to memory");
    file
}
