//! Links the program at a fixed address on Linux. See docs/decisions/078-the-program-has-a-fixed-address.md.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=THALWEG_PIE");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if is_linux && std::env::var_os("THALWEG_PIE").is_none() {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
