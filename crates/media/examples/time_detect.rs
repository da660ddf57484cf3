//! Measures the time to detect the type of a file: `cargo run --release -p thalweg-media --example
//! time_detect`.

use std::hint::black_box;
use std::time::Instant;

use thalweg_media::mime::{HEAD, Matcher, detect};

fn main() {
    let mut random = fastrand::Rng::with_seed(1);
    let noise: Vec<Vec<u8>> = (0..1000).map(|_| (0..HEAD).map(|_| random.u8(..)).collect()).collect();
    time("noise", &noise);
    time("JPEG", &[b"\xff\xd8\xff\xe0\0\x10JFIF".to_vec()]);
    time("English", &[b"The quick brown fox jumps over the lazy dog.\n".repeat(80)]);
    time("CSV", &[b"1,two,three,4.0\n".repeat(300)]);
    time("JSON", &[[b"[".to_vec(), b"{\"a\":[1,2,3],\"b\":\"text\"},".repeat(200)].concat()]);
    let matcher = Matcher::new(["image/png", "image/webp", "image/jpg"]).expect("these are types");
    let begin = Instant::now();
    for _ in 0..1_000_000 {
        black_box(matcher.matches(black_box("image/jpeg")));
    }
    println!("matching: {:.0} ns", begin.elapsed().as_secs_f64() * 1e3);
}

fn time(what: &str, heads: &[Vec<u8>]) {
    let begin = Instant::now();
    let count = 100_000;
    for head in heads.iter().cycle().take(count) {
        black_box(detect(black_box(head)));
    }
    println!("{what}: {:.0} ns", begin.elapsed().as_secs_f64() * 1e9 / count as f64);
}
