//! Counts as people read them.

/// Returns a count with commas between thousands: `1,234,567`.
#[must_use]
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a count with its unit: `1 message`, `2,000 messages`.
#[must_use]
pub fn counted(number: u64, unit: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {unit}{plural}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_set_apart() {
        let counts = [0, 12, 123, 1234, 123_456, 1_234_567, u64::MAX];
        let shown = ["0", "12", "123", "1,234", "123,456", "1,234,567", "18,446,744,073,709,551,615"];
        assert_eq!(counts.map(count), shown);
        assert_eq!(counted(1, "message"), "1 message");
        assert_eq!(counted(0, "message"), "0 messages");
    }
}
