//! The times of svfsc's C++ in nanoseconds per call, in the order of the rows. They were measured once; see
//! `sparse`.

pub const READ: [f64; 10] = [168., 176., 153., 158., 129., 156., 212., 136., 96., 110.];
pub const READ_ONE: [f64; 10] = [40., 41., 40., 41., 40., 41., 44., 46., 44., 52.];
pub const READ_WHOLE: f64 = 58_900.;
pub const WRITE: [f64; 10] = [267., 254., 242., 231., 209., 208., 216., 150., 140., 144.];
pub const WRITE_ONE: [f64; 10] = [49., 51., 57., 65., 86., 122., 186., 333., 604., 1146.];
pub const NEED: [f64; 10] = [107., 113., 126., 150., 179., 225., 316., 455., 705., 1211.];
pub const NEED_WHOLE: f64 = 15.4e6;
pub const NEED_MANY: f64 = 50.6e6;
pub const HAS: f64 = 141.;
/// The wall time in milliseconds until all threads have written or read everything: joined writes, apart
/// writes, reads.
pub const THREADS: [[f64; 3]; 5] =
    [[7.6, 30.1, 19.1], [36.1, 89.2, 79.0], [37.8, 124., 117.], [94.5, 175., 207.], [325., 507., 651.]];
/// The block size, the bytes that its `size_of` reports, and the bytes that its heap really takes.
pub const MEMORY: [(usize, f64, f64); 5] = [
    (1, 42_991_848., 117_440_752.),
    (8, 6_291_688., 14_679_280.),
    (64, 1_704_168., 2_620_880.),
    (256, 1_212_648., 1_441_232.),
    (512, 1_130_728., 1_244_624.),
];
