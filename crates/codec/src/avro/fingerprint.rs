//! CRC-64-AVRO, the fingerprint of schemas in the single-object encoding.

/// The polynomial, and the fingerprint of the empty text.
const EMPTY: u64 = 0xc15d_213a_a4d7_a795;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut value = index as u64;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (EMPTY & (value & 1).wrapping_neg());
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// Returns the fingerprint of a text.
pub(super) fn fingerprint(text: &[u8]) -> u64 {
    text.iter().fold(EMPTY, |value, byte| (value >> 8) ^ TABLE[usize::from(value as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    #[test]
    fn fingerprints_are_those_of_the_specification() {
        assert_eq!(fingerprint(b""), super::EMPTY);
        assert_eq!(fingerprint(b"\"null\""), 0x63dd_24e7_cc25_8f8a);
        assert_eq!(fingerprint(b"\"int\""), 0x7275_d51a_3f39_5c8f);
    }
}
