//! Measures the time of a conversion: `cargo run --release -p thalweg-media --example time_images`.
//!
//! The pictures have 1000 × 800 pixels with gradients, edges and noise like photographs, so that a JPEG of
//! quality 90 has about 185 KB. Prints the milliseconds per picture, and the size of the output.

use std::time::Instant;

use thalweg_media::image::{Conversion, Fit, Format, Resize, convert};

/// The number of pictures converted for each figure.
const COUNT: usize = 20;

fn main() {
    let conversion = |to, quality| Conversion {
        to,
        quality,
        effort: None,
        size: None,
        rotate: true,
        strip: false,
        is_upright: false,
    };
    let seeds = 0..COUNT as u64;
    let pngs: Vec<Vec<u8>> = seeds.map(|seed| picture(1000, 800, seed)).collect();
    let jpegs: Vec<Vec<u8>> =
        pngs.iter().map(|png| convert(png, &conversion(Format::Jpeg, 90)).expect("it is a PNG")).collect();
    let mean = |files: &[Vec<u8>]| files.iter().map(Vec::len).sum::<usize>() / files.len() / 1000;
    println!("PNG {} KB, JPEG {} KB", mean(&pngs), mean(&jpegs));
    let small = Resize { width: Some(320), height: None, fit: Fit::Inside, enlarge: false };
    for effort in 0..=6 {
        time("JPEG to WebP", &jpegs, &Conversion { effort: Some(effort), ..conversion(Format::Webp, 75) });
    }
    time("PNG to JPEG", &pngs, &conversion(Format::Jpeg, 75));
    time("JPEG to JPEG of 320", &jpegs, &Conversion { size: Some(small), ..conversion(Format::Jpeg, 75) });
    for effort in [0, 2, 4] {
        time("JPEG to PNG", &jpegs, &Conversion { effort: Some(effort), ..conversion(Format::Png, 75) });
    }
    time("JPEG to TIFF", &jpegs, &conversion(Format::Tiff, 75));
    time("JPEG to GIF", &jpegs, &conversion(Format::Gif, 75));
    time("JPEG to AVIF", &jpegs[..1], &conversion(Format::Avif, 75));
}

fn time(what: &str, pictures: &[Vec<u8>], conversion: &Conversion) {
    let begin = Instant::now();
    let mut size = 0;
    for picture in pictures {
        match convert(picture, conversion) {
            Ok(made) => size += made.len(),
            Err(error) => return println!("{what}: {error}"),
        }
    }
    let each = begin.elapsed().as_secs_f64() * 1e3 / pictures.len() as f64;
    let effort = conversion.effort.map_or(String::new(), |effort| format!(" effort {effort}"));
    println!("{what}{effort}: {each:.1} ms, {} KB", size / pictures.len() / 1000);
}

/// Creates a picture as PNG.
fn picture(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let discs: Vec<(f32, f32, f32, [f32; 3])> = (0..60)
        .map(|_| {
            let colour = [random.f32(), random.f32(), random.f32()].map(|part| part * 255.0);
            (random.f32() * width as f32, random.f32() * height as f32, 10.0 + random.f32() * 90.0, colour)
        })
        .collect();
    let mut pixels = Vec::with_capacity((width * height * 3) as usize);
    for y in 0..height {
        for x in 0..width {
            let (x, y) = (x as f32, y as f32);
            let inside = discs.iter().find(|(cx, cy, r, _)| (x - cx).powi(2) + (y - cy).powi(2) < r * r);
            let ground =
                [x / width as f32 * 255.0, y / height as f32 * 255.0, 128.0 + 90.0 * (x / 40.0).sin()];
            let colour = inside.map_or(ground, |(cx, _, r, colour)| {
                colour.map(|part| part * (1.0 - (x - cx).abs() / r / 2.0))
            });
            let noise = (random.f32() + random.f32() - 1.0) * 6.0;
            pixels.extend(colour.map(|part| (part + noise) as u8));
        }
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("the header is written to memory");
    writer.write_image_data(&pixels).expect("the pixels are written to memory");
    writer.finish().expect("the end is written to memory");
    file
}
