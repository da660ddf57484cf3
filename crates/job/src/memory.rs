//! The memory of this process.

/// Returns a size that Linux reports for this process, in bytes: `VmRSS` for its resident memory, `VmHWM` for
/// the peak of that. `None` where the system does not report it.
#[must_use]
pub fn process_memory(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let size = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kibibytes: u64 = size.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The peak of the process's resident memory in bytes, where the system reports it.
#[must_use]
pub fn peak_memory() -> Option<u64> {
    process_memory("VmHWM")
}
