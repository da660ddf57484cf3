//! Converts a hundred pictures of 1000 by 800 pixels, beside `vips` on both cores and beside capyfile.

use std::fs;
use std::path::Path;
use std::process::Command;

use thalweg_media::image::{Conversion, Format, convert};

use crate::contest::{Contender, Contest};
use crate::report::finding;

use super::{contenders, print, told_of_capyfile};

const WIDTH: u32 = 1000;
const HEIGHT: u32 = 800;

/// Prints the table.
///
/// # Errors
/// Returns an error if a program fails.
pub fn run(contest: &Contest, capyfile: Option<&Path>) -> Result<(), String> {
    let count = if contest.rounds == 1 { 10 } else { 100 };
    println!("Pictures: {count} of {WIDTH} by {HEIGHT} converted, quality 75\n");
    let folder = contest.path("pictures");
    let has_vips = Command::new("vips").arg("--version").output().is_ok_and(|output| output.status.success());
    for (from, to, mime) in [(Format::Jpeg, "webp", "image/webp"), (Format::Png, "jpg", "image/jpeg")] {
        let (input, output) = (folder.join("in"), folder.join("out"));
        make(&input, from, count)?;
        let glob = format!("{}/*", input.display());
        let variables =
            [("IN_GLOB", glob), ("OUT_DIR", output.display().to_string()), ("TO_MIME", mime.to_owned())];
        let mut contenders = contenders(contest, "image", &variables, capyfile);
        if has_vips {
            let (input, output) = (input.display(), output.display());
            let script = format!(
                "mkdir -p {output} && ls {input} | VIPS_CONCURRENCY=1 xargs -P2 -I NAME \
                 vips copy {input}/NAME '{output}/NAME.{to}[Q=75]'"
            );
            contenders.push(Contender::shell("vips, 2 at once", script));
        }
        let contenders: Vec<Contender> =
            contenders.into_iter().map(|contender| contender.writing(&output)).collect();
        let runs = contest.compare(&contenders)?;
        println!("    {from:?} to {to}");
        for (contender, run) in contenders.iter().zip(&runs) {
            print(contender.name, run);
        }
        told_of_capyfile(&runs);
        if has_vips && let Some(vips) = runs.last() {
            let times = vips.wall.as_secs_f64() / runs[0].wall.as_secs_f64();
            finding(format!("{times:.1} times as fast as `vips` with both cores"));
        }
        fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
    }
    if !has_vips {
        println!("  vips was not measured: it is not installed");
    }
    println!();
    Ok(())
}

/// Creates pictures with gradients, shapes and noise, as in camera images.
fn make(folder: &Path, format: Format, count: u64) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let extension = if format == Format::Png { "png" } else { "jpg" };
    for number in 0..count {
        let mut random = fastrand::Rng::with_seed(number);
        let shapes: Vec<[u32; 3]> =
            (0..12).map(|_| [random.u32(..WIDTH), random.u32(..HEIGHT), random.u32(20..120)]).collect();
        let mut pixels = Vec::with_capacity((WIDTH * HEIGHT * 3) as usize);
        for y in 0..HEIGHT {
            for x in 0..WIDTH {
                let inside = shapes.iter().filter(|[a, b, radius]| {
                    let (dx, dy) = (a.abs_diff(x), b.abs_diff(y));
                    dx * dx + dy * dy < radius * radius
                });
                let shade = inside.count() as u32 * 40;
                let noise = u32::from(random.u8(..12));
                for channel in [x * 255 / WIDTH, y * 255 / HEIGHT, (x + y) * 255 / (WIDTH + HEIGHT)] {
                    pixels.push(((channel + shade) % 244 + noise) as u8);
                }
            }
        }
        let conversion = Conversion {
            to: format,
            quality: 90,
            effort: None,
            size: None,
            rotate: false,
            strip: true,
            is_upright: false,
        };
        let content = convert(&bitmap(&pixels), &conversion).map_err(|error| error.to_string())?;
        fs::write(folder.join(format!("{number:03}.{extension}")), content)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Returns an uncompressed TIFF of one strip, the simplest format that a decoder accepts.
fn bitmap(pixels: &[u8]) -> Vec<u8> {
    let bits = 8 + pixels.len() as u32;
    let entries: [(u16, u16, u32, u32); 9] = [
        (256, 4, 1, WIDTH),
        (257, 4, 1, HEIGHT),
        (258, 3, 3, bits),
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, 8),
        (277, 3, 1, 3),
        (278, 4, 1, HEIGHT),
        (279, 4, 1, pixels.len() as u32),
    ];
    let mut file = b"II*\0".to_vec();
    file.extend((bits + 6).to_le_bytes());
    file.extend(pixels);
    [8u16; 3].iter().for_each(|bits| file.extend(bits.to_le_bytes()));
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    file
}
