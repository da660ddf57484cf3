//! The program's code and constants in memory.
//!
//! A start reads the command line, a configuration and a graph, and touches most of the pages that are ever
//! touched: 28 of the 34 MiB that an idle run had resident. A run needs about half of them. The pages of a
//! file stay mapped until the system is short of memory, so they are unmapped twice: when the program starts,
//! because the dynamic linker has read 6 MiB of relocations that nothing reads again, and when a run starts.
//! Without the first time, the start of a run with expressions had 49 MiB resident; with it, 43.
//!
//! See docs/decisions/050-mimalloc-without-huge-pages.md.

#![allow(unsafe_code, reason = "segments of the program are known to the dynamic linker only")]

use std::ffi::{c_int, c_void};
use std::slice;

use nix::libc::{self, Elf64_Phdr, MADV_DONTNEED, PF_W, PT_LOAD, dl_phdr_info};

/// A multiple of the size of a page, on any machine.
const ALIGNMENT: usize = 64 << 10;

/// Unmaps the pages of the program's code and constants. They stay in the system's cache, and each is mapped
/// again when it is used.
pub fn release() {
    // SAFETY: the function has the right type, and does not use its last argument.
    unsafe { libc::dl_iterate_phdr(Some(release_own), std::ptr::null_mut()) };
}

/// Releases the segments of the object that has this function. Returns 1 for that object, to end the
/// iteration.
unsafe extern "C" fn release_own(object: *mut dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes an object and its headers, which live as long as the object is
    // loaded.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr as usize, slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()))
    };
    let loaded = || headers.iter().filter(|header| header.p_type == PT_LOAD);
    let own = release as *const () as usize;
    if !loaded().any(|header| addresses(base, header).contains(&own)) {
        return 0;
    }
    for header in loaded().filter(|header| header.p_flags & PF_W == 0) {
        let addresses = addresses(base, header);
        let start = addresses.start.next_multiple_of(ALIGNMENT);
        let length = (addresses.end - addresses.end % ALIGNMENT).saturating_sub(start);
        // SAFETY: these pages are a private mapping of the program's file, and no one writes to them. The
        // next access reads the same bytes from the file.
        unsafe { libc::madvise(start as *mut c_void, length, MADV_DONTNEED) };
    }
    1
}

/// Returns the addresses of a segment.
fn addresses(base: usize, header: &Elf64_Phdr) -> std::ops::Range<usize> {
    let start = base + header.p_vaddr as usize;
    start..start + header.p_memsz as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the resident KiB of the mappings that are executable.
    fn resident() -> u64 {
        let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let (mut is_code, mut sum) = (false, 0);
        for line in mappings.lines() {
            if let Some(size) = line.strip_prefix("Rss:") {
                let size: u64 = size.trim().strip_suffix(" kB").unwrap().parse().unwrap();
                sum += if is_code { size } else { 0 };
            } else if !line.ends_with("kB") {
                is_code = line.contains(" r-xp ");
            }
        }
        sum
    }

    #[test]
    fn released_code_is_not_resident_and_still_runs() {
        // Other tests of this process map pages meanwhile.
        let is_less = |_| {
            let before = resident();
            release();
            resident() < before
        };
        assert!((0..20).any(is_less));
    }
}
