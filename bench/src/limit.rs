//! The limits for creating messages and passing them on: arenas of copied messages, used repeatedly.

use std::sync::mpsc::sync_channel;

/// The argument that makes this program run only this limit, so it can run in turn with other contenders.
pub const COMMAND: &str = "limit";

const ARENA: usize = 256 << 10;

/// Creates `count` messages of 256 bytes on `threads` threads, `one` or two.
pub fn run(threads: &str, count: usize) {
    match threads {
        "one" => one_thread(count),
        _ => two_threads(count),
    }
}

/// Copies messages into an arena and reuses it when it is full. No engine that copies each message once and
/// reads none can be faster on one core.
fn one_thread(count: usize) {
    let mut copies = Copies::new();
    let mut arena = vec![0; ARENA];
    let mut made = 0;
    while made < count {
        made += copies.fill(std::hint::black_box(&mut arena));
    }
}

/// Does the same, but passes each arena to another thread, which passes it back.
fn two_threads(count: usize) {
    let mut copies = Copies::new();
    let (full_in, full) = sync_channel::<Vec<u8>>(2);
    let (empty_in, empty) = sync_channel::<Vec<u8>>(4);
    for _ in 0..3 {
        let _ = empty_in.send(vec![0; ARENA]);
    }
    let consumer = std::thread::spawn(move || {
        while let Ok(arena) = full.recv() {
            std::hint::black_box(&arena);
            let _ = empty_in.send(arena);
        }
    });
    let mut made = 0;
    while made < count {
        let Ok(mut arena) = empty.recv() else { break };
        made += copies.fill(&mut arena);
        if full_in.send(arena).is_err() {
            break;
        }
    }
    drop(full_in);
    let _ = consumer.join();
}

struct Copies {
    templates: Vec<[u8; 256]>,
    random: fastrand::Rng,
}

impl Copies {
    fn new() -> Self {
        let templates = (0..10u8).map(|number| [b'a' + number; 256]).collect();
        Self { templates, random: fastrand::Rng::with_seed(7) }
    }

    /// Fills an arena with copies of templates chosen at random, and returns their number.
    fn fill(&mut self, arena: &mut [u8]) -> usize {
        for slot in arena.chunks_exact_mut(256) {
            slot.copy_from_slice(&self.templates[self.random.usize(..self.templates.len())]);
        }
        arena.len() / 256
    }
}
