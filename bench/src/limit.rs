//! The limit for handing messages from one thread to another: arenas of copies, passed and used again.

use std::sync::mpsc::sync_channel;

/// The argument with which this program does just this: as a process of its own it can run in turn with the others.
pub const COMMAND: &str = "two-threads";

/// One thread copies `count` messages of 256 bytes into arenas of `arena` bytes and passes them to another,
/// which passes them back: no engine that copies each message once can be faster.
pub fn two_threads(count: usize, arena: usize) {
    let templates: Vec<[u8; 256]> = (0..10u8).map(|n| [b'a' + n; 256]).collect();
    let (full_in, full) = sync_channel::<Vec<u8>>(2);
    let (empty_in, empty) = sync_channel::<Vec<u8>>(4);
    for _ in 0..3 {
        let _ = empty_in.send(vec![0; arena]);
    }
    let consumer = std::thread::spawn(move || {
        while let Ok(arena) = full.recv() {
            std::hint::black_box(&arena);
            let _ = empty_in.send(arena);
        }
    });
    let mut made = 0;
    let mut random = fastrand::Rng::with_seed(7);
    while made < count {
        let Ok(mut arena) = empty.recv() else { break };
        for slot in arena.chunks_exact_mut(256) {
            slot.copy_from_slice(&templates[random.usize(..templates.len())]);
        }
        made += arena.len() / 256;
        if full_in.send(arena).is_err() {
            break;
        }
    }
    drop(full_in);
    let _ = consumer.join();
}
