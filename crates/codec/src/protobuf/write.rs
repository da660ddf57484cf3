//! Writes the fields of messages, for components that write a fixed protocol.

/// The wire types that are written.
pub(crate) const VARINT: u64 = 0;
pub(crate) const FIXED64: u64 = 1;
pub(crate) const BYTES: u64 = 2;
pub(crate) const FIXED32: u64 = 5;

/// Appends an integer of variable length: seven bits in each byte, the lowest first.
pub fn varint(value: u64, out: &mut Vec<u8>) {
    let mut rest = value;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a field with an integer of variable length. A negative one has the bits of 64.
pub fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    tag(field, VARINT, out);
    varint(value, out);
}

/// Appends a field with a number of the type `double`.
pub fn double(field: u32, value: f64, out: &mut Vec<u8>) {
    tag(field, FIXED64, out);
    out.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// Appends a field with bytes, a text or a message.
pub fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    tag(field, BYTES, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Appends the tag of a field: its number and its wire type.
pub(crate) fn tag(field: u32, wire: u64, out: &mut Vec<u8>) {
    varint((u64::from(field) << 3) | wire, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_format_says() {
        let mut out = Vec::new();
        number(1, 300, &mut out);
        number(2, -1_i64 as u64, &mut out);
        double(3, 1.0, &mut out);
        bytes(16, b"ab", &mut out);
        let minus_one = [0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let one = [0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        assert_eq!(out, [&[0x08, 0xac, 0x02][..], &minus_one, &one, &[0x82, 0x01, 2, b'a', b'b']].concat());
    }
}
