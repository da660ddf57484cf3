//! Memory that the allocator keeps for later, given back to the system.

#![allow(unsafe_code, reason = "a function of the allocator")]

/// Gives free memory back to the system, where the allocator can do so.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(keep: usize) -> std::ffi::c_int;
        }
        // SAFETY: the function may be called at any time, from any thread.
        unsafe { malloc_trim(0) };
    }
}
