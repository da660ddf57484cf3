//! Mutates inputs without guidance: enough to break a parser that was just changed.
//!
//! All choices follow from a seed, so a run is repeated by its number.

use fastrand::Rng;

/// The longest part that is repeated, in bytes, and how often at most. Depth and length break parsers, and a
/// change of single bytes never makes either.
const PART: usize = 64;
const TIMES: usize = 4000;

/// Bytes with a meaning in many formats.
const SPECIAL: &[u8] = b"\0\x01\x7f\x80\xff \t\r\n\"'\\/,;:=&%$#@!?*+-._<>()[]{}|`~09aAzZ";

/// Returns a mutation of one of the `seeds`, at most `longest` bytes long.
pub fn mutated(seeds: &[Vec<u8>], words: &[&str], longest: usize, random: &mut Rng) -> Vec<u8> {
    let mut bytes = pick(seeds, random).to_vec();
    for _ in 0..1 << random.u32(..4) {
        match random.u8(..10) {
            0 => flip(&mut bytes, random),
            1 | 2 => replace(&mut bytes, random),
            3 => insert(&mut bytes, &[SPECIAL[random.usize(..SPECIAL.len())]], random),
            4 => drop(bytes.drain(range(bytes.len(), random))),
            5 => {
                let part = bytes[range(bytes.len(), random)].to_vec();
                insert(&mut bytes, &part, random);
            }
            6 => repeat(&mut bytes, longest, random),
            7 => number(&mut bytes, random),
            8 if !words.is_empty() => {
                insert(&mut bytes, words[random.usize(..words.len())].as_bytes(), random)
            }
            _ => splice(&mut bytes, pick(seeds, random), random),
        }
    }
    bytes.truncate(longest);
    bytes
}

fn pick<'s>(seeds: &'s [Vec<u8>], random: &mut Rng) -> &'s [u8] {
    if seeds.is_empty() { &[] } else { &seeds[random.usize(..seeds.len())] }
}

fn range(length: usize, random: &mut Rng) -> std::ops::Range<usize> {
    let start = random.usize(..=length);
    let most = if random.bool() { length - start } else { (length - start).min(8) };
    start..start + random.usize(..=most)
}

fn flip(bytes: &mut [u8], random: &mut Rng) {
    if !bytes.is_empty() {
        bytes[random.usize(..bytes.len())] ^= 1 << random.u8(..8);
    }
}

fn replace(bytes: &mut [u8], random: &mut Rng) {
    if !bytes.is_empty() {
        let byte = if random.bool() { SPECIAL[random.usize(..SPECIAL.len())] } else { random.u8(..) };
        bytes[random.usize(..bytes.len())] = byte;
    }
}

fn insert(bytes: &mut Vec<u8>, part: &[u8], random: &mut Rng) {
    let at = random.usize(..=bytes.len());
    bytes.splice(at..at, part.iter().copied());
}

fn repeat(bytes: &mut Vec<u8>, longest: usize, random: &mut Rng) {
    let mut range = range(bytes.len(), random);
    range.end = range.end.min(range.start + PART);
    let times = random.usize(..=TIMES).min(longest / range.len().max(1));
    let part = bytes[range.clone()].repeat(times);
    bytes.splice(range, part);
}

/// Replaces some bytes by a binary number at a limit, or a run of digits by a text of one.
fn number(bytes: &mut Vec<u8>, random: &mut Rng) {
    const LIMITS: [u64; 8] = [0, 1, 0x7f, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, u64::MAX];
    let limit = LIMITS[random.usize(..LIMITS.len())];
    let digits = bytes.iter().position(u8::is_ascii_digit).filter(|_| random.bool());
    match digits {
        Some(start) => {
            let end = start + bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            bytes.splice(start..end, limit.to_string().into_bytes());
        }
        None => {
            let width = 1 << random.u8(..4);
            let number = if random.bool() {
                limit.to_le_bytes()
            } else {
                limit.rotate_left(64 - 8 * width as u32 % 64).to_be_bytes()
            };
            let start = random.usize(..=bytes.len());
            let end = (start + width).min(bytes.len());
            bytes.splice(start..end, number[..width].iter().copied());
        }
    }
}

/// Replaces the end by the end of another input.
fn splice(bytes: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    bytes.truncate(random.usize(..=bytes.len()));
    bytes.extend_from_slice(&other[random.usize(..=other.len())..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs_within_the_limit() {
        let seeds = [b"{\"a\": [1, 2]}".to_vec(), b"x".to_vec()];
        let all = |seed| {
            let mut random = Rng::with_seed(seed);
            (0..2000).map(|_| mutated(&seeds, &["null"], 500, &mut random)).collect::<Vec<_>>()
        };
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert!(all(1).iter().all(|input| input.len() <= 500));
        assert!(all(1).iter().any(|input| input.len() == 500));
    }
}
